"""Rows whose keys and values lie on another device: sent into its ring, and what came of them (Weaver, ATC'25, §4.1).

The receiver's side is `poll`: it finds a task when ``asked`` moves, and moves ``served`` when the answers are there.
Here a send writes rows, positions and block lines into the next slot, then adds to ``asked``; a `gather` looks at
``served`` until its task is done, and takes the answers. Both are launches of a program like any other, so neither
host has anything to do: which slot comes next is read on the device, and in a graph how many rows are remote, too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.task_ring import ATTEND
from gpu_node.kernels.triton.cache import LayerCache
from gpu_node.kernels.triton.launch import launch, padded, require

LINES_TOGETHER = 128
"""Of a block table, that are copied at a time."""
_ATTEND = tl.constexpr(ATTEND)


@triton.jit(do_not_specialize=["first", "window"])
def _send(
    q,
    k,
    v,
    positions,
    first_blocks,
    lines,
    span,
    kinds,
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
    IS_COUNTED: tl.constexpr,
):
    row, num_rows = tl.program_id(0), tl.num_programs(0)
    own_row, sequence = row, row
    if IS_COUNTED:
        own_row, sequence, num_rows = row + tl.load(span), row + tl.load(span + 1), tl.load(span + 2)
    if (tl.load(lost) == 0) & (row < num_rows):
        task = tl.load(sent)
        there = (task % num_slots) * max_sequences + row
        columns, kv_columns = tl.arange(0, PADDED_WIDTH), tl.arange(0, PADDED_KV_WIDTH)
        is_q, is_kv = columns < width, kv_columns < kv_width
        here = own_row.to(tl.int64)
        tl.store(ring_q + there * width + columns, tl.load(q + here * q_stride + columns, mask=is_q), mask=is_q)
        at = there * kv_width + kv_columns
        tl.store(ring_k + at, tl.load(k + here * k_stride + kv_columns, mask=is_kv), mask=is_kv)
        tl.store(ring_v + at, tl.load(v + here * v_stride + kv_columns, mask=is_kv), mask=is_kv)
        position = tl.load(positions + own_row)
        tl.store(ring_positions + there, position)
        own = lines + tl.load(first_blocks + sequence)
        num_blocks = position // BLOCK_SIZE + 1
        for begin in range(0, num_blocks, LINES_TOGETHER):
            blocks = begin + tl.arange(0, LINES_TOGETHER)
            seen = blocks < num_blocks
            tl.store(ring_lines + there * max_blocks + blocks, tl.load(own + blocks, mask=seen), mask=seen)
        tl.debug_barrier()  # all threads have written before one says so
        if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == num_rows - 1:
            tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
            slot = task % num_slots
            tl.store(kinds + slot, _ATTEND)
            tl.store(nums_sequences + slot, num_rows)
            tl.store(firsts + slot, first)
            tl.store(windows + slot, window)
            tl.store(sent, task + 1)
            tl.debug_barrier()
            tl.atomic_add(asked, 1, sem="acq_rel", scope="sys")


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

    Of no rows, nothing. Each buffer's rows may be strides apart. Where ``rows`` have a span, only those in it are sent.
    """
    ring, num_rows = remote_ring.ring, len(q)
    num_slots, max_sequences, max_blocks = ring.block_lines.shape
    is_counted = rows.span is not None
    require(is_counted or num_rows <= max_sequences, "send: no more rows than a task of the ring has", q)
    require(len(k) == len(v) == len(rows.positions) == num_rows, "send: rows alike", k)
    require(is_counted or len(rows.first_blocks) == num_rows, "send: a sequence has one row", rows.first_blocks)
    require(q.shape[1] == ring.q.shape[2] and k.shape[1] == v.shape[1] == ring.k.shape[2], "send: columns alike", q)
    require(q.dtype == ring.q.dtype and k.dtype == v.dtype == ring.k.dtype, "send: types alike", q)
    require(all(one.stride(1) == 1 for one in (q, k, v)), "send: a row is one piece", q)
    require(cache.shape == ring.shape, "send: the ring is of the model's shape")
    launch(
        _send,
        (min(num_rows, max_sequences),),
        q,
        k,
        v,
        rows.positions,
        rows.first_blocks,
        rows.block_lines,
        rows.span,
        ring.kinds,
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
        IS_COUNTED=is_counted,
    )
