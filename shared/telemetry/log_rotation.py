"""The log file of a process, kept below a limit by the process itself. Everything that it writes stays in one file.

The code that starts a process (`shared.processes.processes.launch`) opens the file as its standard output and error and
names it in the environment. Where it has grown too large the process puts it aside and points both descriptors to a new
one: what C++ code says in a crash, and what Python says before it ends, follows. Its children inherit name and
descriptors (an engine, a solver); each sees at its next line that the file has another name now, and follows as well.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from pathlib import Path

from shared.telemetry.log_files import LOG_MAX_BYTES, old_log

LOG_FILE_ENV = "TREADLE_LOG_FILE"
_MODE = 0o600  # prompts are not in it, but names of tenants and models are
_OUTPUTS = (1, 2)


class RotatedStderr:
    """Standard error as a stream for loggers; the file behind it is looked at after each line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._outputs = [output for output in _OUTPUTS if _is_at(os.fstat(output), path)]

    def write(self, text: str) -> int:
        """As `sys.stderr` does."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Write out what there is, and rotate if it is time."""
        sys.stderr.flush()
        with self._lock:
            try:
                self._keep_below()
            except OSError:
                return  # the folder is gone, or not ours any more: lines go on into the file that is open

    def _keep_below(self) -> None:
        ours = os.fstat(2)
        if not _is_at(ours, self._path):
            self._follow()
        elif ours.st_size > LOG_MAX_BYTES:
            self._rotate()
            self._follow()

    def _rotate(self) -> None:
        """Of several processes that write the file, one puts it aside."""
        with self._path.open("rb") as found:  # a lock belongs to an opening, and ours is shared with our children
            fcntl.flock(found, fcntl.LOCK_EX)
            if _is_at(os.fstat(found.fileno()), self._path):
                self._path.replace(old_log(self._path))

    def _follow(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
        try:
            for output in self._outputs:
                os.dup2(descriptor, output)
        finally:
            os.close(descriptor)


def log_stream() -> RotatedStderr | None:
    """The stream for this process's lines, where its standard error is the file that the environment names."""
    named = os.environ.get(LOG_FILE_ENV)
    if not named or not _is_at(os.fstat(2), Path(named)):
        return None  # another program looks after it: a container's runtime, a terminal, a test
    return RotatedStderr(Path(named))


def _is_at(found: os.stat_result, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)
