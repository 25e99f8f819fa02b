"""Which Redis the tests run: Debian's (7.0) lacks WAITAOF, and refuses a file of users that names it."""

from __future__ import annotations

import re
import subprocess

import pytest

from cli.cluster.processes.redis_server import find_server

WITH_WAITAOF = (7, 2)


def server_version() -> tuple[int, int]:
    """Major and minor number."""
    said = subprocess.run([str(find_server()), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


needs_waitaof = pytest.mark.skipif(server_version() < WITH_WAITAOF, reason="this Redis is older than 7.2: no WAITAOF")
