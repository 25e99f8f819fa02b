"""What others wait for this device to do, looked at between two operators (Weaver, ATC'25, §4.1).

A task is the attention of some single rows over blocks of this device, which are cut as the sender's are; the rows' own
keys and values come with it and are written there first. Or it moves such blocks, one way or the other. The sender
writes the task into its slot of a ring, adds to ``asked``, and waits for ``served``.

No instance of the kernel waits for another one, so a poll needs no launch in which all run at the same time. Each looks
at ``asked`` for itself and does its tiles of all tasks that it has not done; the last instance at a task adds to
``served``. An instance that looked too early for a task does its tiles at the next poll, and so does the one that comes
last there. Tasks are served in order: the last at a task has seen all arrivals at those before it.

A tile is one row and one KV head, so no instance reads keys and values that another one writes within a task. Where
there are fewer tiles than instances, contexts are split among them (`PartMemory`), as decode attention does it. Rows of
one sequence in two tasks are never unserved together, unless in the same place of both. A task that moves blocks is
never unserved together with another one.

A tile that names anything beyond what is lent (`LentLines`) touches no block, and ``refused`` says so.

Counters only grow and wrap nowhere (int64); a sender keeps fewer than a ring of tasks unserved.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import scale_of
from gpu_node.kernels.triton.attention.served_part import are_lent, attend_part, move_part
from gpu_node.kernels.triton.attention.task_ring import ATTEND, TaskRing, Tasks
from gpu_node.kernels.triton.cache import LayerCache
from gpu_node.kernels.triton.launch import (
    INTERPRETED,
    MIN_DOT,
    SCRATCH_BYTES,
    launch,
    num_processors,
    padded,
    require,
    shared_memory_bytes,
)

TILE_TOKENS = 32
PROGRAMS_A_PROCESSOR, NUM_WARPS = 4, 2
"""As decode attention has them: each waits for one tile while others compute."""
NUM_STAGES = 1
"""No tile is loaded ahead: that wins nothing (H100), and `num_instances` counts with memory for one."""
_ATTEND = tl.constexpr(ATTEND)


@triton.jit
def serve(
    looks,
    asked,
    served,
    refused,
    done,
    arrived,
    kinds,
    nums_sequences,
    firsts,
    windows,
    positions,
    block_lines,
    q,
    k,
    v,
    out,
    content,
    numbers,
    part_results,
    part_logs,
    part_arrived,
    is_lent,
    page_lines,
    num_pages,
    num_slots,
    max_sequences,
    max_blocks,
    max_moved,
    num_kv_heads,
    block_numbers,
    scale,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    CHECKS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """What this instance has to do of all that is asked for by now. A kernel, and what a kernel that waits does."""
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    task = tl.load(done + instance)
    size = block_numbers // LINE_NUMBERS  # of a block
    for _ in range(looks):
        # an addition of 0 is the read with acquire at the scope of the whole system
        num_asked = tl.atomic_add(asked, 0, sem="acquire", scope="sys")
        while task < num_asked:
            slot = task % num_slots
            number, kind = tl.load(nums_sequences + slot), tl.load(kinds + slot)
            lines = block_lines + slot * max_sequences * max_blocks
            if kind == _ATTEND:
                attend_part(
                    slot,
                    number,
                    refused,
                    firsts,
                    windows,
                    positions,
                    block_lines,
                    q,
                    k,
                    v,
                    out,
                    numbers,
                    part_results,
                    part_logs,
                    part_arrived,
                    is_lent,
                    page_lines,
                    num_pages,
                    max_sequences,
                    max_blocks,
                    num_kv_heads,
                    block_numbers,
                    scale,
                    NUM_SHARED,
                    PADDED_SHARED,
                    TILE,
                    LINE_NUMBERS,
                    BLOCK_SIZE,
                    HEAD_DIM,
                    PADDED_DIM,
                    WIDEN,
                    CHECKS,
                    SPLITS,
                )
            else:
                if CHECKS:
                    num_looked = tl.minimum(number, max_moved)
                    if (number > max_moved) | (not are_lent(lines, num_looked, is_lent, page_lines, num_pages, size)):
                        tl.atomic_xchg(refused, 1, sem="relaxed", scope="sys")
                        number = 0
                move_part(kind, lines, number, content, numbers, block_numbers, LINE_NUMBERS)
            tl.debug_barrier()  # all threads have written before one says so
            if tl.atomic_add(arrived + slot, 1, sem="acq_rel", scope="gpu") == num_instances - 1:
                tl.atomic_xchg(arrived + slot, 0, sem="relaxed", scope="gpu")  # before it may be asked for again
                tl.atomic_add(served, 1, sem="acq_rel", scope="sys")
            task += 1
    tl.store(done + instance, task)


def poll(tasks: Tasks, numbers: torch.Tensor, looks: int = 1) -> None:
    """Do what has been asked for and not been done: a read of one counter where that is nothing.

    ``numbers`` is this device's arena, whose pages hold blocks of any shape; the layer is each task's own. ``looks``:
    times that it looks, one after another.
    """
    arguments, constants = serving(tasks, numbers)
    launch(serve, (len(tasks.counters.done),), looks, *arguments, **constants)


def serving(tasks: Tasks, numbers: torch.Tensor) -> tuple[Sequence[object], dict[str, object]]:
    """What `serve` takes behind ``looks``, checked: arguments, and constants by name."""
    counters, ring, lent, parts = tasks.counters, tasks.ring, tasks.lent, tasks.parts
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
    by_slot = (counters.arrived, ring.kinds, ring.num_sequences, ring.firsts, ring.windows)
    require(all(len(one) == num_slots for one in by_slot), "poll: counters and numbers for each slot")
    max_moved, block_numbers = ring.content.shape
    require(block_numbers == shape.block_numbers(numbers.element_size()), "poll: content is of whole blocks")
    if parts is not None:
        require(
            parts.results.shape[:3] == (num_slots, len(counters.done), num_shared), "poll: parts of these instances"
        )
    require(ring.content.dtype == numbers.dtype, "poll: content has the arena's type", ring.content)
    require(max_moved <= max_sequences * max_blocks, "poll: a slot has lines for what is moved", ring.content)
    tensors = (ring.positions, ring.block_lines, ring.q, ring.k, ring.v, ring.out, ring.content)
    require(all(tensor.is_contiguous() for tensor in tensors), "poll: a ring has no gaps")
    arguments = (
        counters.asked,
        counters.served,
        counters.refused,
        counters.done,
        counters.arrived,
        ring.kinds,
        ring.num_sequences,
        ring.firsts,
        ring.windows,
        ring.positions,
        ring.block_lines,
        ring.q,
        ring.k,
        ring.v,
        ring.out,
        ring.content,
        numbers,
        None if parts is None else parts.results,
        None if parts is None else parts.logs,
        None if parts is None else parts.arrived,
        None if lent is None else lent.is_lent,
        0 if lent is None else lent.page_lines,
        0 if lent is None else len(lent.is_lent),
        num_slots,
        max_sequences,
        max_blocks,
        max_moved,
        shape.num_kv_heads,
        block_numbers,
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
        "CHECKS": lent is not None,
        "SPLITS": parts is not None,
        "num_warps": NUM_WARPS,
        "num_stages": NUM_STAGES,
    }
    return arguments, constants


def num_instances(ring: TaskRing) -> int:
    """Of a poll, and of a gather that serves others while it waits: so many run at the same time on the ring's device.

    A gather would wait for ever for tiles of its own instances that do not run.
    """
    if INTERPRETED:
        return num_processors(ring.q.device)
    tile_bytes = 2 * TILE_TOKENS * padded(ring.shape.head_dim, MIN_DOT) * ring.q.element_size()
    room = shared_memory_bytes() // (tile_bytes + SCRATCH_BYTES)
    return num_processors(ring.q.device) * max(1, min(PROGRAMS_A_PROCESSOR, room))
