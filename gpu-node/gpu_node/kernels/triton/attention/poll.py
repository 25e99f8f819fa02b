"""What others wait for this device to do, looked at between two operators (Weaver, ATC'25, §4.1).

A task is the attention of some single rows over blocks of this device, which are cut as the sender's are; the rows' own
keys and values come with it and are written there first. Whoever asks writes the task into its slot of a ring, then
adds to ``asked``, which lies in this device's memory; who has asked waits for ``served``.

No instance of the kernel waits for another one, so a poll needs no launch in which all run at the same time. Each looks
at ``asked`` for itself and does its tiles of all tasks that it has not done; whoever is the last at a task adds to
``served``. An instance that looked too early for a task does its tiles at the next poll, and so does the one that comes
last there. Tasks are served in order: the last at a task has seen everybody's arrival at those before it.

A tile is one row and one KV head, so no instance reads what another one writes within a task. Rows of one sequence in
two tasks are never unserved together, unless in the same place of both.

Counters only grow and wrap nowhere (int64); whoever asks keeps fewer than a ring of tasks unserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries, scale_of
from gpu_node.kernels.triton.cache import CacheShape, LayerCache
from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, launch, padded, require

TILE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class TaskRing:
    """Tasks of one sender by slot, ``task % slots``: it writes what it asks for, this device the answer."""

    shape: CacheShape
    """Of the sender's blocks."""
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

        def integers(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=like.device)

        q, out = (like.new_zeros((num_slots, max_sequences, num_columns)) for _ in range(2))
        k, v = (like.new_zeros((num_slots, max_sequences, shape.num_kv_heads * shape.head_dim)) for _ in range(2))
        return cls(
            shape=shape,
            num_sequences=integers(num_slots),
            firsts=integers(num_slots, dtype=torch.int64),
            windows=integers(num_slots),
            positions=integers(num_slots, max_sequences),
            block_lines=integers(num_slots, max_sequences, max_blocks),
            q=q,
            k=k,
            v=v,
            out=out,
        )


@dataclass(frozen=True, slots=True)
class PollCounters:
    """How far everybody is. All int64, all 0 at first."""

    asked: torch.Tensor
    """[1]: tasks that have been asked for."""
    served: torch.Tensor
    """[1]: tasks whose answers are there."""
    done: torch.Tensor
    """[instances]: tasks that each instance has done its tiles of."""
    arrived: torch.Tensor
    """[slots]: instances that have done their tiles of the slot's task."""

    @classmethod
    def new(cls, num_instances: int, num_slots: int, device: torch.device) -> PollCounters:
        """For so many programs at a time, as a rule one a processor, and tasks that wait."""
        sizes = (1, 1, num_instances, num_slots)
        return cls(*(torch.zeros(size, dtype=torch.int64, device=device) for size in sizes))


@dataclass(frozen=True, slots=True)
class Tasks:
    """What the polls of a program look for."""

    counters: PollCounters
    ring: TaskRing


@triton.jit
def serve(
    asked,
    served,
    done,
    arrived,
    nums_sequences,
    firsts,
    windows,
    positions,
    block_lines,
    q,
    k,
    v,
    out,
    numbers,
    num_slots,
    max_sequences,
    max_blocks,
    num_kv_heads,
    scale,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """What this instance has to do of all that is asked for by now. A kernel, and what a kernel that waits does."""
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    # an addition of 0 is the read with acquire at the scope of the whole system
    num_asked = tl.atomic_add(asked, 0, sem="acquire", scope="sys")
    task = tl.load(done + instance)
    shared, dims = tl.arange(0, PADDED_SHARED), tl.arange(0, PADDED_DIM)
    here, in_head = shared < NUM_SHARED, dims < HEAD_DIM
    kind = numbers.dtype.element_ty
    width = num_kv_heads * NUM_SHARED * HEAD_DIM
    while task < num_asked:
        slot = task % num_slots
        first, window = tl.load(firsts + slot), tl.load(windows + slot)
        for tile in range(instance, tl.load(nums_sequences + slot) * num_kv_heads, num_instances):
            row = slot * max_sequences + tile // num_kv_heads
            kv_head = tile % num_kv_heads
            position = tl.load(positions + row)
            block = tl.load(block_lines + row * max_blocks + position // BLOCK_SIZE).to(tl.int64)
            head = first + kv_head * (2 * BLOCK_SIZE * HEAD_DIM)
            key = numbers + block * LINE_NUMBERS + head + position % BLOCK_SIZE * HEAD_DIM + dims
            own = (row * num_kv_heads + kv_head) * HEAD_DIM + dims
            tl.store(key, tl.load(k + own, mask=in_head, other=0.0).to(kind), mask=in_head)
            value = key + BLOCK_SIZE * HEAD_DIM
            tl.store(value, tl.load(v + own, mask=in_head, other=0.0).to(kind), mask=in_head)
            tl.debug_barrier()  # all threads have written before one reads
            columns = (kv_head * NUM_SHARED + shared) * HEAD_DIM
            rows = tl.zeros([PADDED_SHARED], tl.int64) + row
            queries = load_queries(q, width, rows, columns, here, HEAD_DIM, PADDED_DIM)
            result, _ = attend(
                queries,
                tl.zeros([PADDED_SHARED], tl.int32) + position,
                numbers,
                block_lines + row * max_blocks,
                head,
                tl.maximum(position + 1 - window, 0),
                position + 1,
                window,
                scale,
                TILE,
                LINE_NUMBERS,
                BLOCK_SIZE,
                HEAD_DIM,
                PADDED_DIM,
                WIDEN,
            )
            at = rows[:, None] * width + columns[:, None] + dims[None, :]
            tl.store(out + at, result.to(out.dtype.element_ty), mask=here[:, None] & in_head[None, :])
        tl.debug_barrier()  # all threads have written before one says so
        if tl.atomic_add(arrived + slot, 1, sem="acq_rel", scope="gpu") == num_instances - 1:
            tl.atomic_xchg(arrived + slot, 0, sem="relaxed", scope="gpu")  # before anybody may ask for the slot again
            tl.atomic_add(served, 1, sem="acq_rel", scope="sys")
        task += 1
    tl.store(done + instance, task)


def poll(counters: PollCounters, ring: TaskRing, numbers: torch.Tensor) -> None:
    """Do what has been asked for and not been done: a read of one counter where that is nothing.

    ``numbers`` is this device's arena, whose pages hold blocks of any shape; the layer is each task's own.
    """
    arguments, constants = serving(counters, ring, numbers)
    launch(serve, (len(counters.done),), *arguments, **constants)


def serving(
    counters: PollCounters, ring: TaskRing, numbers: torch.Tensor
) -> tuple[Sequence[object], dict[str, object]]:
    """What `serve` takes, checked: arguments, and constants by name."""
    shape = ring.shape
    cache = LayerCache(numbers, shape, 0)
    num_slots, max_sequences, max_blocks = ring.block_lines.shape
    num_shared, rest = divmod(ring.q.shape[2], shape.num_kv_heads * shape.head_dim)
    require(num_shared > 0 and rest == 0, "poll: heads share KV heads evenly", ring.q)
    require(ring.q.shape == ring.out.shape, "poll: out has the shape of q", ring.out)
    require(
        ring.k.shape == ring.v.shape == (num_slots, max_sequences, shape.num_kv_heads * shape.head_dim),
        "poll: k and v are [slots, sequences, kv_heads * head_dim]",
        ring.k,
    )
    require(ring.q.shape[:2] == ring.positions.shape == (num_slots, max_sequences), "poll: a row for each sequence")
    require(
        len(counters.arrived) == len(ring.num_sequences) == len(ring.firsts) == len(ring.windows) == num_slots,
        "poll: counters and numbers for each slot",
    )
    tensors = (ring.positions, ring.block_lines, ring.q, ring.k, ring.v, ring.out)
    require(all(tensor.is_contiguous() for tensor in tensors), "poll: a ring has no gaps")
    arguments = (
        counters.asked,
        counters.served,
        counters.done,
        counters.arrived,
        ring.num_sequences,
        ring.firsts,
        ring.windows,
        ring.positions,
        ring.block_lines,
        ring.q,
        ring.k,
        ring.v,
        ring.out,
        numbers,
        num_slots,
        max_sequences,
        max_blocks,
        shape.num_kv_heads,
        scale_of(shape.head_dim),
    )
    constants: dict[str, object] = {
        "NUM_SHARED": num_shared,
        "PADDED_SHARED": padded(num_shared, MIN_DOT),
        "TILE": TILE_TOKENS,
        "LINE_NUMBERS": cache.line_numbers,
        "BLOCK_SIZE": shape.block_size,
        "HEAD_DIM": shape.head_dim,
        "PADDED_DIM": padded(shape.head_dim, MIN_DOT),
        "WIDEN": INTERPRETED,
    }
    return arguments, constants
