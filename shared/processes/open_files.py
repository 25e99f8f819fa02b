"""How many files a process may have open: each connection is one, and shells commonly allow 1,024."""

from __future__ import annotations

import resource


def allow_all() -> int:
    """Take as many as this process may have, and say how many that are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
