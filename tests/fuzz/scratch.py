"""A folder for files that are written again and again: in memory where the machine has such a place."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


@cache
def scratch() -> Path:
    """Of this process, gone when it ends; or the one that a campaign has given it."""
    if given := os.environ.get("TREADLE_FUZZ_SCRATCH"):
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="treadle-fuzz-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def rewritten(path: Path, data: bytes) -> Path:
    """A new file at ``path``: the old one may still be mapped, and a mapped file that shrinks kills who reads it."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path
