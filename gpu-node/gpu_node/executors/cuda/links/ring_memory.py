"""How a ring and its counters lie in memory that two processes map: both ends lay them out alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_node.kernels.triton.attention.task_ring import RingSizes, TaskRing
from gpu_node.kernels.triton.cache import CacheShape
from shared.messages.memory.link_sizes import LinkSizes

ALIGNMENT_BYTES = 256
MOVED_BYTES = 4 << 20
"""Of blocks that move in one task, at most."""


@dataclass(frozen=True, slots=True)
class RingMemory:
    """What both ends see."""

    ring: TaskRing
    asked: torch.Tensor
    """int64 [1]: the sender's."""
    served: torch.Tensor
    """int64 [1]: the receiver's, as ``refused``."""
    refused: torch.Tensor

    @classmethod
    def of(cls, sizes: LinkSizes, dtype: torch.dtype, content: torch.Tensor) -> RingMemory:
        """In ``content``, uint8 [bytes]."""
        return _laid_out(sizes, dtype, _Taking(content).take)


def ring_bytes(sizes: LinkSizes, dtype: torch.dtype) -> int:
    """What it takes."""
    counting = _Counting()
    _laid_out(sizes, dtype, counting.take)
    return counting.num_bytes


def cache_shape(sizes: LinkSizes) -> CacheShape:
    """Of the sender's blocks."""
    return CacheShape(sizes.num_layers, sizes.block_size, sizes.num_kv_heads, sizes.head_dim)


def _laid_out(
    sizes: LinkSizes, dtype: torch.dtype, take: Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
) -> RingMemory:
    shape = cache_shape(sizes)
    max_blocks = sizes.max_blocks // sizes.max_sequences
    block_bytes = shape.block_numbers(dtype.itemsize) * dtype.itemsize
    max_moved = max(1, min(MOVED_BYTES // block_bytes, sizes.max_blocks))
    columns = sizes.num_heads * sizes.head_dim
    asked, served, refused = (take((1,), torch.int64) for _ in range(3))
    ring_sizes = RingSizes(sizes.num_slots, sizes.max_sequences, max_blocks, columns, max_moved)
    return RingMemory(TaskRing.of(shape, ring_sizes, dtype, take), asked, served, refused)


class _Counting:
    """Takes nothing, and knows how much that would be."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def take(self, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Of a shape alone."""
        tensor = torch.empty(size, dtype=dtype, device="meta")
        self.num_bytes += -(-tensor.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return tensor


class _Taking:
    """Takes one piece of a memory after another."""

    def __init__(self, content: torch.Tensor) -> None:
        self._content = content
        self._counted = _Counting()

    def take(self, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The next."""
        first = self._counted.num_bytes
        num_bytes = self._counted.take(size, dtype).nbytes
        return self._content[first : first + num_bytes].view(dtype).view(size)
