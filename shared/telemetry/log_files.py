"""Logs of the processes: one file each, appended, kept below a limit (`log_rotation`)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

LOG_MAX_BYTES = 16 << 20  # a log above this is set aside; one older file is kept, so that a process has 32 MiB at most
LOG_SUFFIX = ".log"
OLD_SUFFIX = ".1"
TAIL_LINES = 12
_TAIL_BYTES = 16 << 10


def log_file(data_dir: Path, name: str) -> Path:
    """Log of a process. A node's name may hold a slash, which must not become a folder."""
    return data_dir / "logs" / f"{quote(name, safe='')}{LOG_SUFFIX}"


def old_log(log: Path) -> Path:
    """Where a log is set aside; it replaces the one that lay there."""
    return log.with_name(f"{log.name}{OLD_SUFFIX}")


def process_of(log: Path) -> str:
    """Name of the process that writes it."""
    return unquote(log.name.removesuffix(LOG_SUFFIX))


def rotate(log: Path) -> int:
    """Set a large log aside before a start; returns where the new process's lines begin."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= LOG_MAX_BYTES:
        return size
    log.replace(old_log(log))
    return 0


def tail(log: Path, start: int = 0) -> str:
    """The last lines that were written after ``start``, indented."""
    with log.open("rb") as file:
        end = file.seek(0, 2)
        since = start if start <= end else 0  # it has been set aside since
        file.seek(max(since, end - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (it wrote nothing)"
