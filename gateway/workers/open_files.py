"""Each connection is an open file, and a process may have so many: checked before the first client comes."""

from __future__ import annotations

import resource

from gateway.http.connections import MAX_REFUSED
from shared.errors import OperatorError

FILES_BESIDE = 256  # Redis, the admin port, logs, model files while they are read, libraries


class TooFewFilesError(OperatorError):
    """The process may not open as many files as its connections need."""


def allow_connections(num_connections: int) -> None:
    """Raise the process's own limit of open files as far as is needed; `TooFewFilesError` says what to do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_files(num_connections, soft, hard)
    if wanted != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def needed_files(num_connections: int, soft: int, hard: int) -> int:
    """The soft limit to set, given those that hold; `TooFewFilesError` where the hard one is too low."""
    needed = num_connections + MAX_REFUSED + FILES_BESIDE
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return soft
    if hard != unlimited and hard < needed:
        raise TooFewFilesError(
            f"{num_connections} connections need {needed} open files, but this process may have {hard}: raise it "
            f"(`ulimit -n {needed}`, LimitNOFILE of systemd, --ulimit nofile={needed} of Docker), or set "
            f"gateway.max_connections and gateway.max_inflight to at most {max(hard - MAX_REFUSED - FILES_BESIDE, 0)}"
        )
    return needed
