"""The end of a log file, and what is added to it, also while it is set aside and begun anew."""

from __future__ import annotations

import os
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from cli.cluster.logs.log_lines import LogLine, read_lines
from shared.telemetry.log_files import old_log, process_of

_BLOCK_BYTES = 1 << 16


class LogTail:
    """One process's log, read from its last lines on."""

    def __init__(self, path: Path) -> None:
        self.name = process_of(path)
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._since: datetime | None = None

    def last(self, num_lines: int) -> list[LogLine]:
        """The last lines of the file, and of the one that was set aside where it has fewer."""
        self._open()
        if self._file is None:
            return []
        texts = _last(self._file, num_lines)
        old = old_log(self._path)
        if len(texts) < num_lines and old.exists():
            with old.open("rb") as file:
                texts = [*_last(file, num_lines - len(texts)), *texts]
        return self._read(texts)

    def more(self) -> list[LogLine]:
        """What has come since. A line that is not complete yet is kept for the next time."""
        texts = self._added()
        if self._is_set_aside():
            texts += [self._rest] if self._rest else []
            self._rest = b""
            self.close()
            self._open()
            texts += self._added()
        return self._read(texts)

    def close(self) -> None:
        """No more is wanted."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            self._file = None  # set aside, and the next one not begun

    def _added(self) -> list[bytes]:
        if self._file is None:
            return []
        *texts, self._rest = (self._rest + self._file.read()).split(b"\n")
        return texts

    def _is_set_aside(self) -> bool:
        if self._file is None:
            return True
        try:
            return os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino
        except FileNotFoundError:
            return False

    def _read(self, texts: list[bytes]) -> list[LogLine]:
        decoded = [text.decode(errors="replace") for text in texts]
        lines = read_lines(self.name, decoded) if self._since is None else read_lines(self.name, decoded, self._since)
        if lines:
            self._since = lines[-1].when
        return lines


def _last(file: BinaryIO, num_lines: int) -> list[bytes]:
    """The last lines, read from the end backwards; the file is left at its end."""
    end = file.seek(0, os.SEEK_END)
    blocks: deque[bytes] = deque()
    num_found, place = 0, end
    while place > 0 and num_found <= num_lines:
        size = min(_BLOCK_BYTES, place)
        place -= size
        file.seek(place)
        blocks.appendleft(file.read(size))
        num_found += blocks[0].count(b"\n")
    file.seek(end)
    lines = b"".join(blocks).splitlines()
    return lines[-num_lines:] if num_lines else []
