"""The processes of one engine with vLLM: a group of their own, which ends with its head."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's own
GUARD = Path(__file__).with_name("guard.py")


def begin_group() -> Path:
    """Make this process the head of a group, and start the one that ends the group should it be killed.

    Returns a folder for sockets and KV on its way, which goes with it: in memory, where the system has such a place.
    """
    os.setpgid(0, 0)
    in_memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="treadle-vllm-", dir=in_memory))
    command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(folder), str(time.time())]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - our own file
    return folder
