"""What a worker writes down before each input, so that nothing is lost where an input ends the whole process."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutators import MAX_BYTES

_COUNTS = struct.Struct("<QQQQI")
"""Inputs begun, decoded, found, bytes grown; length of the current input, which follows."""


@dataclass(frozen=True)
class Counts:
    """Of one worker."""

    num_inputs: int
    num_decoded: int
    num_found: int
    grown_bytes: int
    """Memory of the process now, beyond what it had after its examples."""


class Box:
    """A small file that worker and campaign have mapped."""

    def __init__(self, path: Path) -> None:
        num_bytes = _COUNTS.size + MAX_BYTES
        if not path.is_file():
            path.write_bytes(bytes(num_bytes))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), num_bytes)

    def write(self, counts: Counts, data: bytes) -> None:
        """What is known before ``data`` is fed."""
        kept = data[:MAX_BYTES]
        numbers = (counts.num_inputs, counts.num_decoded, counts.num_found, counts.grown_bytes)
        _COUNTS.pack_into(self._map, 0, *numbers, len(kept))
        self._map[_COUNTS.size : _COUNTS.size + len(kept)] = kept

    def read(self) -> tuple[Counts, bytes]:
        """The last that was written."""
        *numbers, length = _COUNTS.unpack_from(self._map, 0)
        return Counts(*numbers), self._map[_COUNTS.size : _COUNTS.size + length]
