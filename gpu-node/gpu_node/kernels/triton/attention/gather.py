"""What came of rows that were sent to another device, and blocks that go there or come back (Weaver, ATC'25, §4.1).

A gather does what others ask of this device meanwhile: two devices that send to each other do not wait for ever. So it
has as many instances as a poll, all of which a device runs at the same time; an interpreter, which runs one after the
other, serves others in a gather with one instance alone.

A receiver that has not answered after so many looks, or refuses, is *lost*: the rows of that step are zeros, nothing is
sent any more, and no later answer is read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.poll import serve, serving
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import Tasks
from gpu_node.kernels.triton.launch import launch, padded, require

LINES_TOGETHER = 128
"""Of blocks that move, that are copied at a time."""
SERVED_CONSTANTS = [name for name in serve.arg_names if name.isupper()]
NUM_SERVED = len(serve.arg_names) - len(SERVED_CONSTANTS) - 1
"""Other arguments of `serve`, but for how often it looks."""


@triton.jit(do_not_specialize=["num_rows", "max_looks"])
def _gather(
    served,
    refused,
    gathered,
    arrived,
    lost,
    answers,
    out,
    span,
    out_stride,
    num_rows,
    num_slots,
    max_sequences,
    width,
    max_looks,
    own_asked,
    own_served,
    own_refused,
    own_done,
    own_arrived,
    own_kinds,
    own_nums_sequences,
    own_firsts,
    own_windows,
    own_positions,
    own_block_lines,
    own_q,
    own_k,
    own_v,
    own_out,
    own_content,
    own_numbers,
    own_part_results,
    own_part_logs,
    own_part_arrived,
    own_is_lent,
    own_page_lines,
    own_num_pages,
    own_num_slots,
    own_max_sequences,
    own_max_blocks,
    own_max_moved,
    own_num_kv_heads,
    own_block_numbers,
    own_scale,
    PADDED_WIDTH: tl.constexpr,
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
    IS_COUNTED: tl.constexpr,
    IS_MOVE: tl.constexpr,
    SERVES: tl.constexpr,
):
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    first_row = 0
    if IS_COUNTED:
        first_row, num_rows = tl.load(span), tl.load(span + 2)
    if IS_MOVE | (num_rows > 0):
        task, is_lost = tl.load(gathered), tl.load(lost) != 0
        looks = tl.where(is_lost, 0, max_looks)
        while (looks > 0) & (tl.atomic_add(served, 0, sem="acquire", scope="sys") <= task):
            if SERVES:
                serve(
                    1,
                    own_asked,
                    own_served,
                    own_refused,
                    own_done,
                    own_arrived,
                    own_kinds,
                    own_nums_sequences,
                    own_firsts,
                    own_windows,
                    own_positions,
                    own_block_lines,
                    own_q,
                    own_k,
                    own_v,
                    own_out,
                    own_content,
                    own_numbers,
                    own_part_results,
                    own_part_logs,
                    own_part_arrived,
                    own_is_lent,
                    own_page_lines,
                    own_num_pages,
                    own_num_slots,
                    own_max_sequences,
                    own_max_blocks,
                    own_max_moved,
                    own_num_kv_heads,
                    own_block_numbers,
                    own_scale,
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
            looks -= 1
        is_there = (not is_lost) & (tl.atomic_add(served, 0, sem="acquire", scope="sys") > task)
        is_there = is_there & (tl.atomic_add(refused, 0, sem="acquire", scope="sys") == 0)
        if not is_there:
            tl.atomic_xchg(lost, 1, sem="relaxed", scope="gpu")
        columns = tl.arange(0, PADDED_WIDTH)
        own = columns < width
        first = (task % num_slots) * max_sequences
        for row in range(instance, num_rows, num_instances):
            values = tl.load(answers + (first + row) * width + columns, mask=own & is_there, other=0.0)
            tl.store(out + (first_row + row) * out_stride + columns, values, mask=own)
        tl.debug_barrier()
        if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == num_instances - 1:
            tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
            tl.store(gathered, task + 1)


@triton.jit(do_not_specialize=["kind", "num_blocks"])
def _ask_move(
    lines,
    kinds,
    nums_sequences,
    ring_lines,
    asked,
    sent,
    lost,
    kind,
    num_blocks,
    num_slots,
    slot_lines,
    TILE: tl.constexpr,
):
    if tl.load(lost) == 0:
        task = tl.load(sent)
        slot = task % num_slots
        for begin in range(0, num_blocks, TILE):
            blocks = begin + tl.arange(0, TILE)
            seen = blocks < num_blocks
            tl.store(ring_lines + slot * slot_lines + blocks, tl.load(lines + blocks, mask=seen), mask=seen)
        tl.store(kinds + slot, kind)
        tl.store(nums_sequences + slot, num_blocks)
        tl.store(sent, task + 1)
        tl.debug_barrier()
        tl.atomic_add(asked, 1, sem="acq_rel", scope="sys")


def gather(
    remote_ring: RemoteRing,
    out: torch.Tensor,
    tasks: Tasks | None,
    numbers: torch.Tensor,
    span: torch.Tensor | None = None,
) -> None:
    """What came of the oldest task that is not gathered: ``out`` [rows, columns], as many rows as were sent.

    ``tasks``: what others ask of this device, over its arena ``numbers``, to be done while it waits. ``span``: that of
    the rows that were sent; then ``out`` has all rows, and nothing is waited for where none were.
    """
    ring = remote_ring.ring
    require(out.shape[1] == ring.out.shape[2] and out.dtype == ring.out.dtype, "gather: as the ring answers", out)
    require(out.stride(1) == 1, "gather: a row is one piece", out)
    if len(out):  # else nothing was sent
        _wait(remote_ring, out, tasks, numbers, span)


def ask_move(remote_ring: RemoteRing, kind: int, lines: torch.Tensor) -> None:
    """Have the blocks at ``lines`` int32 [blocks] of the receiver get what lies in the ring's content, or copied to it.

    ``kind``: `PUT` or `TAKE`. All that was sent is gathered, and a `settle` follows.
    """
    ring = remote_ring.ring
    num_slots, max_sequences, max_blocks = ring.block_lines.shape
    require(0 < len(lines) <= len(ring.content), "ask_move: no more blocks than the ring has content for", lines)
    require(lines.dtype == torch.int32, "ask_move: lines are int32", lines)
    launch(
        _ask_move,
        (1,),
        lines,
        ring.kinds,
        ring.num_sequences,
        ring.block_lines,
        remote_ring.asked,
        remote_ring.sent,
        remote_ring.lost,
        kind,
        len(lines),
        num_slots,
        max_sequences * max_blocks,
        TILE=LINES_TOGETHER,
    )


def settle(remote_ring: RemoteRing, tasks: Tasks | None, numbers: torch.Tensor) -> None:
    """Wait until blocks have moved, or the receiver is lost; ``tasks`` and ``numbers`` as in `gather`."""
    _wait(remote_ring, None, tasks, numbers, None)


def _wait(
    remote_ring: RemoteRing,
    out: torch.Tensor | None,
    tasks: Tasks | None,
    numbers: torch.Tensor,
    span: torch.Tensor | None,
) -> None:
    """Until the oldest task is done; its rows into ``out``, if it has some."""
    ring = remote_ring.ring
    num_slots, max_sequences, _ = ring.block_lines.shape
    rows = ring.out[0, :0] if out is None else out
    own = (
        remote_ring.served,
        remote_ring.refused,
        remote_ring.gathered,
        remote_ring.arrived[1:],
        remote_ring.lost,
        ring.out,
        rows,
        span,
        rows.stride(0),
        len(rows),
        num_slots,
        max_sequences,
        rows.shape[1],
        remote_ring.max_looks,
    )
    constants: dict[str, object] = {
        "PADDED_WIDTH": padded(rows.shape[1]),
        "IS_COUNTED": span is not None,
        "IS_MOVE": out is None,
    }
    if tasks is None:
        nothing = dict.fromkeys(SERVED_CONSTANTS)
        grid = (max(1, min(len(rows), max_sequences)),)
        launch(_gather, grid, *own, *[None] * NUM_SERVED, **constants, **nothing, SERVES=False)
        return
    arguments, served = serving(tasks, numbers)
    launch(_gather, (len(tasks.counters.done),), *own, *arguments, **constants, **served, SERVES=True)
