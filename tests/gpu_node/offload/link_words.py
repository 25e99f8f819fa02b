"""The words of a link's header as they lie in memory, for tests that stand in for one side of it, or look in."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np

from gpu_node.kernels.cpu import CpuLinkShape, Int32s

OFFSETS = {
    "format": 0,
    "shape": 8,
    "sender": 44,
    "generation": 256,
    "num_asked": 260,
    "rings": 264,
    "sender_sleeps": 268,
    "accepted": 320,
    "num_served": 324,
    "refused": 328,
    "receiver_sleeps": 332,
}
"""In bytes from the beginning (LinkHeader in link.h)."""


def lines(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


class LinkWords:
    """A mapping of a link's file."""

    HEADER = 384
    """Bytes of the header."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<I", self.memory, OFFSETS[name])[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<I", self.memory, OFFSETS[name], value & 0xFFFFFFFF)

    def part(self, name: str, shape: CpuLinkShape) -> Int32s:
        """The numbers of the table, or of the header of the first task; a view."""
        numbers = self.HEADER + lines(12)
        slots = numbers + lines(4 * (3 * shape.max_sequences + shape.max_blocks))
        first = {
            "table": self.HEADER,
            "starts": numbers,
            "num_rows": numbers + 4 * shape.max_sequences,
            "num_blocks": numbers + 8 * shape.max_sequences,
            "blocks": numbers + 12 * shape.max_sequences,
            "task": slots,
        }[name]
        return np.frombuffer(self.memory, dtype=np.int32, count=16 if name != "blocks" else 64, offset=first)
