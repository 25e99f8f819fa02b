"""The words of a link's header as they lie in memory, for tests that stand in for one side of it, or look in."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

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


class LinkWords:
    """A mapping of a link's file."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<I", self.memory, OFFSETS[name])[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<I", self.memory, OFFSETS[name], value & 0xFFFFFFFF)
