"""What a store asks of the worker that reads and writes its blocks, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_node.engine.memory.prefix import Prefix
from gpu_node.engine.memory.tiers.ssd_index import Slot


@dataclass(frozen=True, slots=True)
class BlockJob:
    """A block to be written or read."""

    owner: object
    """The `BlockManager` whose host memory it is."""
    is_read: bool
    slot: Slot
    prefix: Prefix
    content: Sequence[memoryview]
    """Host memory, in pieces."""
    host_block: int


@dataclass(frozen=True, slots=True)
class Done:
    """A job has come to its end."""

    job: BlockJob
    error: str = ""
    """What the system said; empty where it did as it was told."""
    is_damaged: bool = False
    """The slot did not hold the block."""
    is_cancelled: bool = False
    duration_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        """The block is where it should be."""
        return not (self.error or self.is_damaged or self.is_cancelled)


@dataclass(frozen=True, slots=True)
class EarlierBlocks:
    """What an earlier life has left."""

    blocks: list[tuple[bytes, Slot]]
    """Written longest ago first."""
    error: str = ""
