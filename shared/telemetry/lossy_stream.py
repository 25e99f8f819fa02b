"""A stream for loggers that never fails: who says something must not fall because the disk has no room for it."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import Counter

LOST_LINES = Counter("treadle_log_lines_lost_total", "Log lines that could not be written: the disk is full, or broken")


class _Stream(Protocol):
    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class LossyStream:
    """Writes to another stream; what that does not take is lost, and counted."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """A line, or more."""
        try:
            return self._stream.write(text)
        except OSError:
            LOST_LINES.inc()
            return len(text)

    def flush(self) -> None:
        """As far as that is possible; what is left in the stream's own buffer is tried again with the next line."""
        try:
            self._stream.flush()
        except OSError:
            LOST_LINES.inc()
