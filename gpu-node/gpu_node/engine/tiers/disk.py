"""How the files of a folder are read and written: past the page cache where the file system can, else through it.

Only this engine reads what it writes, and its host memory keeps what is used. So a page cache would hold the same a
second time, and its copies would take the processors that compute: with as many threads as cores, each block that is
written holds up all of them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import structlog

PAGE_BYTES = 4096
"""Offsets, lengths and addresses of direct reads and writes are multiples of it: as much as any device asks for."""

log = structlog.get_logger()


class Disk(Protocol):
    """Reads and writes of open files, in pieces. Both raise `OSError`, and may do less than they were asked for."""

    @property
    def open_flags(self) -> int:
        """Files are opened with these, too."""
        ...

    def read(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """Fill ``pieces``; the number of bytes read."""
        ...

    def write(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """Write ``pieces``; the number of bytes written."""
        ...


class SystemDisk:
    """Through the page cache: the plain path."""

    open_flags = 0

    def read(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """One call."""
        return os.preadv(fd, pieces, offset)

    def write(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """One call."""
        return os.pwritev(fd, pieces, offset)


class DirectDisk:
    """Past the page cache, for one thread and offsets that are multiples of a page.

    Pieces that are whole pages go as they are; what is not goes through a buffer, and the last page is filled up.
    """

    open_flags = os.O_DIRECT

    def __init__(self) -> None:
        self._buffer = mmap.mmap(-1, PAGE_BYTES)

    def read(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """One call."""
        num_asked_bytes = sum(piece.nbytes for piece in pieces)
        parts = self._parts(pieces)
        num_bytes = min(os.preadv(fd, [there for _, there in parts], offset), num_asked_bytes)
        left = num_bytes
        for group, there in parts:
            start = 0
            for piece in group:
                end = min(start + piece.nbytes, max(start, left))
                piece[: end - start] = there[start:end]
                start = end
            left -= there.nbytes
        return num_bytes

    def write(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        """One call."""
        num_bytes = sum(piece.nbytes for piece in pieces)
        parts = self._parts(pieces)
        for group, there in parts:
            start = 0
            for piece in group:
                there[start : start + piece.nbytes] = piece
                start += piece.nbytes
            if group:
                there[start:] = bytes(there.nbytes - start)
        return min(os.pwritev(fd, [there for _, there in parts], offset), num_bytes)

    def _parts(self, pieces: Sequence[memoryview]) -> list[tuple[list[memoryview], memoryview]]:
        """Whole pages of memory in the order of ``pieces``, and those of them that are copied there or back.

        A piece that is no whole pages in one place takes all that are behind it into the buffer, if its end is not that
        of a page.
        """
        groups = list(_groups(pieces))
        sizes = [0 if len(group) == 1 and _is_whole_pages(group[0]) else _page_bytes(group) for group in groups]
        if sum(sizes) > len(self._buffer):
            self._buffer = mmap.mmap(-1, sum(sizes))
        parts, start = [], 0
        buffer = memoryview(self._buffer)
        for group, size in zip(groups, sizes, strict=True):
            parts.append((group, buffer[start : start + size]) if size else ([], group[0]))
            start += size
        return parts


def _groups(pieces: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """Cut where pages end."""
    group: list[memoryview] = []
    num_bytes = 0
    for piece in pieces:
        group.append(piece)
        num_bytes += piece.nbytes
        if num_bytes % PAGE_BYTES == 0:
            yield group
            group = []
    if group:
        yield group


def _page_bytes(pieces: Sequence[memoryview]) -> int:
    return -(-sum(piece.nbytes for piece in pieces) // PAGE_BYTES) * PAGE_BYTES


def _is_whole_pages(piece: memoryview) -> bool:
    address = np.frombuffer(piece, dtype=np.uint8).ctypes.data
    return address % PAGE_BYTES == 0 and piece.nbytes % PAGE_BYTES == 0


def disk_of(file: Path) -> Disk:
    """A direct one if the file system of ``file``, which is there, has such: those of disks do."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT))
    except OSError as error:
        log.info("no direct I/O, blocks go through the page cache", file=str(file), reason=error.strerror)
        return SystemDisk()
    return DirectDisk()
