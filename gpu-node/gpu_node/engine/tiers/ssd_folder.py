"""The folder of an engine on its SSD: a lock, and a file a segment, named ``segment-NUMBER-SLOTBYTES.kv``."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.disk import Disk, disk_of
from gpu_node.engine.tiers.record import HEADER_BYTES, DamagedError, decode
from shared.errors import OperatorError

LOCK_NAME = "lock"
MAX_OPEN_FILES = 64
MAX_SEGMENT_BYTES = 256 << 20
MIN_SEGMENTS = 8
"""A small budget is cut into so many, so that models whose blocks differ in size find room beside each other."""
_SEGMENT = re.compile(r"segment-(\d{1,9})-(\d{1,12})\.kv")


class FolderError(OperatorError, RuntimeError):
    """The folder cannot be used; the text says why, and what to do."""


def segment_bytes(capacity_bytes: int) -> int:
    """Of each segment of a folder with so much room."""
    return min(MAX_SEGMENT_BYTES, capacity_bytes // MIN_SEGMENTS)


class SsdFolder:
    """Owns it as long as it is open: `FolderError` where another process does, or where it cannot be written to."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        """``disk`` is the best that the folder's file system has, if none is named."""
        self.path = path
        self._files: OrderedDict[tuple[int, int], int] = OrderedDict()  # by segment and bytes of a slot
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FolderError(
                f"engine.tiers.ssd_folder: {path} cannot be used ({error.strerror}); name a folder that this node may "
                "write to, or leave ssd_folder and ssd_bytes out"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise FolderError(
                f"engine.tiers.ssd_folder: {path} is used by another process; give each cluster of this machine a "
                "folder of its own, and each node a name of its own"
            ) from error
        self._disk = disk or disk_of(path / LOCK_NAME)

    def close(self) -> None:
        """Another process may use it."""
        while self._files:
            os.close(self._files.popitem()[1])
        os.close(self._lock)

    def segments(self) -> list[tuple[int, int]]:
        """Number and bytes of a slot of every segment that is there. `OSError` where the folder cannot be read."""
        found = (_SEGMENT.fullmatch(file.name) for file in self.path.iterdir())
        return sorted((int(one[1]), int(one[2])) for one in found if one is not None and int(one[2]) > HEADER_BYTES)

    def num_bytes(self, segment: int, slot_bytes: int) -> int:
        """Of a segment's file; with a larger budget it may have been longer than it should be. `OSError`."""
        return self._path(segment, slot_bytes).lstat().st_size

    def headers(self, segment: int, slot_bytes: int) -> list[tuple[int, bytes, Slot]]:
        """Order, digest and slot of each block in a segment whose header is whole. `OSError`."""
        fd = self._open(segment, slot_bytes)
        blocks = []
        for number in range(os.fstat(fd).st_size // slot_bytes + 1):
            data = bytearray(HEADER_BYTES)
            num_bytes = self._disk.read(fd, [memoryview(data)], number * slot_bytes)
            try:
                header = decode(bytes(data[:num_bytes]))
            except DamagedError:
                continue  # it was never written, or a kill tore it
            blocks.append((header.order, header.digest, Slot(segment, number, slot_bytes)))
        return blocks

    def remove(self, segment: int, slot_bytes: int) -> None:
        """Delete a segment; one that is not there is as good. `OSError`."""
        fd = self._files.pop((segment, slot_bytes), None)
        if fd is not None:
            os.close(fd)
        self._path(segment, slot_bytes).unlink(missing_ok=True)

    def write(self, slot: Slot, pieces: Sequence[memoryview]) -> None:
        """Write to the beginning of a slot. `OSError`, also where only a part was written."""
        fd = self._open(slot.segment, slot.slot_bytes)
        num_bytes = sum(piece.nbytes for piece in pieces)
        assert num_bytes <= slot.slot_bytes
        if self._disk.write(fd, pieces, slot.number * slot.slot_bytes) != num_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, slot: Slot, pieces: Sequence[memoryview]) -> int:
        """Read from the beginning of a slot; the number of bytes, fewer where the file ends before. `OSError`."""
        fd = self._open(slot.segment, slot.slot_bytes)
        return self._disk.read(fd, pieces, slot.number * slot.slot_bytes)

    def _open(self, segment: int, slot_bytes: int) -> int:
        """A file that stays open until others were used; one of this number with other slots is deleted."""
        key = (segment, slot_bytes)
        if key not in self._files:
            for number, other in self.segments():
                if number == segment and other != slot_bytes:
                    self.remove(number, other)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | self._disk.open_flags
            self._files[key] = os.open(self._path(segment, slot_bytes), flags, 0o644)
            if len(self._files) > MAX_OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
        self._files.move_to_end(key)
        return self._files[key]

    def _path(self, segment: int, slot_bytes: int) -> Path:
        return self.path / f"segment-{segment}-{slot_bytes}.kv"
