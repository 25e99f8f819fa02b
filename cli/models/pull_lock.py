"""One pull at a time of what goes to one place: several pods may share a volume."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.errors import CliError

WAIT_S = 6 * 3600.0  # the largest models over a slow line
POLL_S = 0.5


@contextmanager
def only_pull(lock: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold ``lock``, a file that stays; wait while another process does. `CliError` after ``wait_s``."""
    with lock.open("w") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise CliError(f"another pull holds {lock} for {wait_s:.0f} s already; end it") from error
                time.sleep(POLL_S)
            else:
                break
        yield
