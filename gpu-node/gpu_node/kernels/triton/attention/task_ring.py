"""What one device asks of another: tasks by slot of a ring, and how far both are with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_node.kernels.triton.cache import CacheShape

ATTEND, PUT, TAKE = range(3)
"""What a task is: attention of single rows; blocks that come into the arena, or are copied out of it."""

Empty = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""Makes a tensor of a shape and a type."""


@dataclass(frozen=True, slots=True)
class RingSizes:
    """How much one ring can hold."""

    num_slots: int
    """Tasks under way."""
    max_sequences: int
    """Of a task, a row each."""
    max_blocks: int
    """Of one sequence."""
    num_columns: int
    """Of a row of q."""
    max_moved: int = 1
    """Blocks that one task moves."""


@dataclass(frozen=True, slots=True)
class TaskRing:
    """Tasks of one sender by slot, ``task % slots``: it writes what it asks for, this device the answer.

    A task that moves blocks has their number in ``num_sequences``, where they lie at the beginning of the slot's
    ``block_lines``, and what they hold in ``content``, which there is once: one such task is under way at a time.
    """

    shape: CacheShape
    """Of the sender's blocks."""
    kinds: torch.Tensor
    """int32 [slots]: `ATTEND`, `PUT` or `TAKE`."""
    num_sequences: torch.Tensor
    """int32 [slots]."""
    firsts: torch.Tensor
    """int64 [slots]: where in a block the layer begins (`LayerCache.first`)."""
    windows: torch.Tensor
    """int32 [slots]: tokens that a row sees; `attention_tile.UNBOUNDED` for all before it."""
    positions: torch.Tensor
    """int32 [slots, sequences]: of each row."""
    block_lines: torch.Tensor
    """int32 [slots, sequences, blocks]."""
    q: torch.Tensor
    """[slots, sequences, heads * head_dim]."""
    k: torch.Tensor
    """[slots, sequences, kv_heads * head_dim]: of the same rows."""
    v: torch.Tensor
    """Likewise."""
    out: torch.Tensor
    """As q."""
    content: torch.Tensor
    """[blocks, numbers of a block, in whole lines]."""

    @classmethod
    def new(
        cls,
        shape: CacheShape,
        num_slots: int,
        max_sequences: int,
        max_blocks: int,
        num_columns: int,
        like: torch.Tensor,
    ) -> TaskRing:
        """Without a task; ``num_columns`` of a row of q, in the type and on the device of ``like``."""
        sizes = RingSizes(num_slots, max_sequences, max_blocks, num_columns)
        return cls.of(shape, sizes, like.dtype, lambda size, dtype: torch.zeros(size, dtype=dtype, device=like.device))

    @classmethod
    def of(cls, shape: CacheShape, sizes: RingSizes, dtype: torch.dtype, empty: Empty) -> TaskRing:
        """Of rows and blocks of ``dtype``, in memory that ``empty`` gives, in this order; all 0 where there is none."""
        slots, each = (sizes.num_slots,), (sizes.num_slots, sizes.max_sequences)
        kv_columns = shape.num_kv_heads * shape.head_dim
        return cls(
            shape=shape,
            kinds=empty(slots, torch.int32),
            num_sequences=empty(slots, torch.int32),
            firsts=empty(slots, torch.int64),
            windows=empty(slots, torch.int32),
            positions=empty(each, torch.int32),
            block_lines=empty((*each, sizes.max_blocks), torch.int32),
            q=empty((*each, sizes.num_columns), dtype),
            k=empty((*each, kv_columns), dtype),
            v=empty((*each, kv_columns), dtype),
            out=empty((*each, sizes.num_columns), dtype),
            content=empty((sizes.max_moved, shape.block_numbers(dtype.itemsize)), dtype),
        )


@dataclass(frozen=True, slots=True)
class PollCounters:
    """How far sender and instances are. All int64, all 0 at first."""

    asked: torch.Tensor
    """[1]: tasks that have been asked for."""
    served: torch.Tensor
    """[1]: tasks whose answers are there."""
    refused: torch.Tensor
    """[1]: not 0 once a task named what is not lent to its sender: of that task, some rows have no answer."""
    done: torch.Tensor
    """[instances]: tasks that each instance has done its tiles of."""
    arrived: torch.Tensor
    """[slots]: instances that have done their tiles of the slot's task."""

    @classmethod
    def new(cls, num_instances: int, num_slots: int, device: torch.device) -> PollCounters:
        """For so many programs at a time (`poll.num_instances`) and tasks that wait."""
        sizes = (1, 1, 1, num_instances, num_slots)
        return cls(*(torch.zeros(size, dtype=torch.int64, device=device) for size in sizes))


@dataclass(frozen=True, slots=True)
class PartMemory:
    """Where polls keep parts of contexts until they are put together; owned by the device that polls.

    As many parts a slot as there are instances: rows whose KV heads are fewer than these have their contexts split.
    """

    results: torch.Tensor
    """float32 [slots, instances, heads of a KV head, head_dim]."""
    logs: torch.Tensor
    """float32 [slots, instances, heads of a KV head]: powers of 2, of the sums of weights."""
    arrived: torch.Tensor
    """int32 [slots, instances]: by row and KV head, instances that have done their part; all 0 at first."""

    @classmethod
    def new(cls, ring: TaskRing, num_instances: int) -> PartMemory:
        """For tasks of a ring, on its device."""
        head_dim = ring.shape.head_dim
        num_shared = ring.q.shape[2] // (ring.shape.num_kv_heads * head_dim)
        each = (len(ring.kinds), num_instances)
        results = ring.q.new_empty((*each, num_shared, head_dim), dtype=torch.float32)
        logs = ring.q.new_empty((*each, num_shared), dtype=torch.float32)
        return cls(results, logs, torch.zeros(each, dtype=torch.int32, device=ring.q.device))


@dataclass(frozen=True, slots=True)
class LentLines:
    """Which pages of this device's arena a sender may name blocks in."""

    is_lent: torch.Tensor
    """int32 [pages]: 1 where it may."""
    page_lines: int


@dataclass(frozen=True, slots=True)
class Tasks:
    """What the polls of a program look for."""

    counters: PollCounters
    ring: TaskRing
    lent: LentLines | None = None
    """None: the sender is trusted, and may name any block."""
    parts: PartMemory | None = None
    """None: no context is split, however few rows there are."""
