"""Rows whose keys and values lie on another device: sent into its ring, and what came of them (Weaver, ATC'25, §4.1).

The receiver's side is `poll`: it finds a task when ``asked`` moves, and moves ``served`` when the answers are there.
Here a send writes rows, positions and block lines into the next slot, then adds to ``asked``; a gather looks at
``served`` until its task is done, and takes the answers. Both are launches of a program like any other, so neither
host has anything to do: which slot comes next is read on the device.

A gather does what others ask of this device meanwhile: two devices that send to each other do not wait for ever. So it
has as many instances as a poll, all of which a device runs at the same time; an interpreter, which runs one after the
other, serves others in a gather with one instance alone.

Whoever has not answered after so many looks is *lost*: the rows of that step are zeros, nothing is sent any more, and
no later answer is read. Another receiver, or the same one later, has a ring of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.poll import PollCounters, TaskRing, Tasks, serve, serving
from gpu_node.kernels.triton.cache import LayerCache, Places
from gpu_node.kernels.triton.launch import launch, padded, require

MAX_LOOKS = 1_000_000
"""Before a receiver is lost: of a microsecond each, about what a client may wait for a token."""
LINES_TOGETHER = 128
"""Of a block table, that are copied at a time."""
SERVED_CONSTANTS = [name for name in serve.arg_names if name.isupper()]
NUM_SERVED = len(serve.arg_names) - len(SERVED_CONSTANTS)
"""Other arguments of `serve`."""


@dataclass(frozen=True, slots=True)
class RemoteRing:
    """What a device asks of one receiver. Counters are int64 and only grow, as the receiver's do."""

    ring: TaskRing
    asked: torch.Tensor
    """[1]: of the receiver."""
    served: torch.Tensor
    """[1]: of the receiver."""
    places: Places
    """Where the receiver's blocks of the sender's model begin."""
    sent: torch.Tensor
    """[1]: tasks that were asked for here."""
    gathered: torch.Tensor
    """[1]: those whose answers were taken, or given up."""
    arrived: torch.Tensor
    """[2]: programs of the running send and of the running gather that have done their part."""
    lost: torch.Tensor
    """int32 [1]: 1 once an answer was not there in time."""
    max_looks: int = MAX_LOOKS

    @classmethod
    def new(cls, counters: PollCounters, ring: TaskRing, places: Places, max_looks: int = MAX_LOOKS) -> RemoteRing:
        """For a receiver whose polls look at ``counters`` and ``ring``, from its first task on."""
        device = ring.q.device
        sent, gathered, arrived = (torch.zeros(size, dtype=torch.int64, device=device) for size in (1, 1, 2))
        lost = torch.zeros(1, dtype=torch.int32, device=device)
        return cls(ring, counters.asked, counters.served, places, sent, gathered, arrived, lost, max_looks)

    @property
    def is_lost(self) -> bool:
        """Whether the receiver has missed an answer; waits for what is queued."""
        return bool(self.lost)


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """Single rows of a step, each the last of a sequence, where the receiver has them. Tensors are int32."""

    positions: torch.Tensor
    """[rows]."""
    first_blocks: torch.Tensor
    """[rows]: the place of each one's first block in ``block_lines``."""
    block_lines: torch.Tensor
    """[blocks]: of the receiver."""


@triton.jit(do_not_specialize=["first", "window"])
def _send(
    q,
    k,
    v,
    positions,
    first_blocks,
    lines,
    ring_positions,
    ring_lines,
    ring_q,
    ring_k,
    ring_v,
    nums_sequences,
    firsts,
    windows,
    asked,
    sent,
    arrived,
    lost,
    q_stride,
    k_stride,
    v_stride,
    first,
    window,
    num_slots,
    max_sequences,
    max_blocks,
    width,
    kv_width,
    PADDED_WIDTH: tl.constexpr,
    PADDED_KV_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    LINES_TOGETHER: tl.constexpr,
):
    row, num_rows = tl.program_id(0), tl.num_programs(0)
    if tl.load(lost) == 0:
        task = tl.load(sent)
        there = (task % num_slots) * max_sequences + row
        columns, kv_columns = tl.arange(0, PADDED_WIDTH), tl.arange(0, PADDED_KV_WIDTH)
        is_q, is_kv = columns < width, kv_columns < kv_width
        here = row.to(tl.int64)
        tl.store(ring_q + there * width + columns, tl.load(q + here * q_stride + columns, mask=is_q), mask=is_q)
        at = there * kv_width + kv_columns
        tl.store(ring_k + at, tl.load(k + here * k_stride + kv_columns, mask=is_kv), mask=is_kv)
        tl.store(ring_v + at, tl.load(v + here * v_stride + kv_columns, mask=is_kv), mask=is_kv)
        position = tl.load(positions + row)
        tl.store(ring_positions + there, position)
        own = lines + tl.load(first_blocks + row)
        num_blocks = position // BLOCK_SIZE + 1
        for begin in range(0, num_blocks, LINES_TOGETHER):
            blocks = begin + tl.arange(0, LINES_TOGETHER)
            seen = blocks < num_blocks
            tl.store(ring_lines + there * max_blocks + blocks, tl.load(own + blocks, mask=seen), mask=seen)
        tl.debug_barrier()  # all threads have written before one says so
        if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == num_rows - 1:
            tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
            slot = task % num_slots
            tl.store(nums_sequences + slot, num_rows)
            tl.store(firsts + slot, first)
            tl.store(windows + slot, window)
            tl.store(sent, task + 1)
            tl.debug_barrier()
            tl.atomic_add(asked, 1, sem="acq_rel", scope="sys")


@triton.jit(do_not_specialize=["num_rows", "max_looks"])
def _gather(
    served,
    gathered,
    arrived,
    lost,
    answers,
    out,
    out_stride,
    num_rows,
    num_slots,
    max_sequences,
    width,
    max_looks,
    own_asked,
    own_served,
    own_done,
    own_arrived,
    own_nums_sequences,
    own_firsts,
    own_windows,
    own_positions,
    own_block_lines,
    own_q,
    own_k,
    own_v,
    own_out,
    own_numbers,
    own_num_slots,
    own_max_sequences,
    own_max_blocks,
    own_num_kv_heads,
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
    SERVES: tl.constexpr,
):
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    task, is_lost = tl.load(gathered), tl.load(lost) != 0
    looks = tl.where(is_lost, 0, max_looks)
    while (looks > 0) & (tl.atomic_add(served, 0, sem="acquire", scope="sys") <= task):
        if SERVES:
            serve(
                own_asked,
                own_served,
                own_done,
                own_arrived,
                own_nums_sequences,
                own_firsts,
                own_windows,
                own_positions,
                own_block_lines,
                own_q,
                own_k,
                own_v,
                own_out,
                own_numbers,
                own_num_slots,
                own_max_sequences,
                own_max_blocks,
                own_num_kv_heads,
                own_scale,
                NUM_SHARED,
                PADDED_SHARED,
                TILE,
                LINE_NUMBERS,
                BLOCK_SIZE,
                HEAD_DIM,
                PADDED_DIM,
                WIDEN,
            )
        looks -= 1
    is_there = (not is_lost) & (tl.atomic_add(served, 0, sem="acquire", scope="sys") > task)
    if not is_there:
        tl.atomic_xchg(lost, 1, sem="relaxed", scope="gpu")
    columns = tl.arange(0, PADDED_WIDTH)
    own = columns < width
    first = (task % num_slots) * max_sequences
    for row in range(instance, num_rows, num_instances):
        values = tl.load(answers + (first + row) * width + columns, mask=own & is_there, other=0.0)
        tl.store(out + row * out_stride + columns, values, mask=own)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == num_instances - 1:
        tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
        tl.store(gathered, task + 1)


def send(
    remote_ring: RemoteRing,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache: LayerCache,
    rows: RemoteRows,
    window: int = UNBOUNDED,
) -> None:
    """Ask for the attention of ``q`` [rows, columns] in the layer of ``cache``; ``k`` and ``v`` of these rows are kept.

    Of no rows, nothing. Each buffer's rows may be strides apart.
    """
    ring, num_rows = remote_ring.ring, len(q)
    num_slots, max_sequences, max_blocks = ring.block_lines.shape
    require(num_rows <= max_sequences, "send: no more rows than a task of the ring has", q)
    require(len(k) == len(v) == len(rows.positions) == len(rows.first_blocks) == num_rows, "send: rows alike", k)
    require(q.shape[1] == ring.q.shape[2] and k.shape[1] == v.shape[1] == ring.k.shape[2], "send: columns alike", q)
    require(q.dtype == ring.q.dtype and k.dtype == v.dtype == ring.k.dtype, "send: types alike", q)
    require(all(one.stride(1) == 1 for one in (q, k, v)), "send: a row is one piece", q)
    require(cache.shape == ring.shape, "send: the ring is of the model's shape")
    launch(
        _send,
        (num_rows,),
        q,
        k,
        v,
        rows.positions,
        rows.first_blocks,
        rows.block_lines,
        ring.positions,
        ring.block_lines,
        ring.q,
        ring.k,
        ring.v,
        ring.num_sequences,
        ring.firsts,
        ring.windows,
        remote_ring.asked,
        remote_ring.sent,
        remote_ring.arrived[:1],
        remote_ring.lost,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        cache.first,
        window,
        num_slots,
        max_sequences,
        max_blocks,
        q.shape[1],
        k.shape[1],
        PADDED_WIDTH=padded(q.shape[1]),
        PADDED_KV_WIDTH=padded(k.shape[1]),
        BLOCK_SIZE=cache.shape.block_size,
        LINES_TOGETHER=LINES_TOGETHER,
    )


def gather(remote_ring: RemoteRing, out: torch.Tensor, tasks: Tasks | None, numbers: torch.Tensor) -> None:
    """What came of the oldest task that is not gathered: ``out`` [rows, columns], as many rows as were sent.

    ``tasks``: what others ask of this device, over its arena ``numbers``, to be done while it waits.
    """
    ring, num_rows = remote_ring.ring, len(out)
    if not num_rows:  # nothing was sent
        return
    num_slots, max_sequences, _ = ring.block_lines.shape
    require(out.shape[1] == ring.out.shape[2] and out.dtype == ring.out.dtype, "gather: as the ring answers", out)
    require(out.stride(1) == 1, "gather: a row is one piece", out)
    own = (
        remote_ring.served,
        remote_ring.gathered,
        remote_ring.arrived[1:],
        remote_ring.lost,
        ring.out,
        out,
        out.stride(0),
        num_rows,
        num_slots,
        max_sequences,
        out.shape[1],
        remote_ring.max_looks,
    )
    width = padded(out.shape[1])
    if tasks is None:
        nothing = dict.fromkeys(SERVED_CONSTANTS)
        launch(_gather, (num_rows,), *own, *[None] * NUM_SERVED, PADDED_WIDTH=width, **nothing, SERVES=False)
        return
    arguments, constants = serving(tasks.counters, tasks.ring, numbers)
    launch(_gather, (len(tasks.counters.done),), *own, *arguments, PADDED_WIDTH=width, **constants, SERVES=True)
