"""Rotary embedding, and the write of keys and values into blocks: alone, or both at once (PagedAttention, §5.1)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import check_rows, padded, require


@triton.jit
def _turn(x, angles, out, HALF: tl.constexpr, PADDED_HALF: tl.constexpr):
    """Turn the pairs (i, i + HALF) of a head; ``angles`` are cosines, then sines."""
    pairs = tl.arange(0, PADDED_HALF)
    here = pairs < HALF
    first = tl.load(x + pairs, mask=here, other=0.0).to(tl.float32)
    second = tl.load(x + HALF + pairs, mask=here, other=0.0).to(tl.float32)
    cosine = tl.load(angles + pairs, mask=here, other=0.0).to(tl.float32)
    sine = tl.load(angles + HALF + pairs, mask=here, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    turned_first = (first * cosine - second * sine).to(kind)
    turned_second = (second * cosine + first * sine).to(kind)
    tl.store(out + pairs, turned_first, mask=here)
    tl.store(out + HALF + pairs, turned_second, mask=here)
    return turned_first, turned_second


@triton.jit
def _rope(x, angles, out, x_stride, angles_stride, out_stride, HALF: tl.constexpr, PADDED_HALF: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1) * 2 * HALF
    _turn(x + row * x_stride + head, angles + row * angles_stride, out + row * out_stride + head, HALF, PADDED_HALF)


@triton.jit
def _rope_write_kv(
    q,
    k,
    v,
    angles,
    numbers,
    row_lines,
    positions,
    q_stride,
    k_stride,
    v_stride,
    angles_stride,
    first,
    num_heads,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TURNS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    PADDED_HALF: tl.constexpr = (PADDED_DIM + 1) // 2
    if head < num_heads:  # one of the queries
        if TURNS:
            _turn(
                q + row * q_stride + head * HEAD_DIM,
                angles + row * angles_stride,
                q + row * q_stride + head * HEAD_DIM,
                HALF,
                PADDED_HALF,
            )
    else:
        kv_head = head - num_heads
        slot = tl.load(positions + row) % BLOCK_SIZE
        block = numbers + tl.load(row_lines + row).to(tl.int64) * LINE_NUMBERS + first
        keys = block + kv_head * (2 * BLOCK_SIZE * HEAD_DIM)
        values = keys + BLOCK_SIZE * HEAD_DIM
        own = k + row * k_stride + kv_head * HEAD_DIM
        kind = numbers.dtype.element_ty
        dims = tl.arange(0, PADDED_DIM)
        here = dims < HEAD_DIM
        if TURNS:
            one, other = _turn(own, angles + row * angles_stride, own, HALF, PADDED_HALF)
            pairs = tl.arange(0, PADDED_HALF)
            # from registers: the other threads' stores need not be visible yet
            tl.store(keys + slot * HEAD_DIM + pairs, one.to(kind), mask=pairs < HALF)
            tl.store(keys + slot * HEAD_DIM + HALF + pairs, other.to(kind), mask=pairs < HALF)
        else:
            tl.store(keys + slot * HEAD_DIM + dims, tl.load(own + dims, mask=here).to(kind), mask=here)
        value = tl.load(v + row * v_stride + kv_head * HEAD_DIM + dims, mask=here)
        tl.store(values + slot * HEAD_DIM + dims, value.to(kind), mask=here)


def rope(x: torch.Tensor, angles: torch.Tensor, out: torch.Tensor) -> None:
    """Rotate the heads of ``x`` [rows, heads * head_dim] by ``angles`` [rows, head_dim]; ``out`` may be ``x``."""
    check_rows(x, angles, out)
    head_dim = angles.shape[1]
    require(x.shape == out.shape, "rope: x and out have one shape")
    require(len(x) == len(angles) and x.shape[1] % head_dim == 0, "rope: angles for each row, whole heads")
    require(head_dim % 2 == 0, "rope: head_dim is even")
    if len(x):
        strides = x.stride(0), angles.stride(0), out.stride(0)
        _rope[(len(x), x.shape[1] // head_dim)](
            x, angles, out, *strides, HALF=head_dim // 2, PADDED_HALF=padded(head_dim // 2), num_warps=1
        )


def write_kv(k: torch.Tensor, v: torch.Tensor, cache: LayerCache, batch: DeviceBatch) -> None:
    """Write ``k`` and ``v`` [rows, kv_heads * head_dim] into the rows' slots."""
    _write(None, k, v, None, cache, batch)


def rope_write_kv(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, angles: torch.Tensor, cache: LayerCache, batch: DeviceBatch
) -> None:
    """`rope` of ``q`` and of ``k``, both in place, and `write_kv` of the turned k and of ``v``."""
    _write(q, k, v, angles, cache, batch)


def _write(
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    angles: torch.Tensor | None,
    cache: LayerCache,
    batch: DeviceBatch,
) -> None:
    shape = cache.shape
    turned, turns = (k, k) if q is None or angles is None else (q, angles)
    check_rows(turned, k, v, turns)
    columns = shape.num_kv_heads * shape.head_dim
    require(k.shape == v.shape == (len(batch.positions), columns), "write_kv: k and v are [rows, kv_heads * head_dim]")
    require(len(turned) == len(turns) == len(k), "rope_write_kv: q and angles have the rows of k")
    require(angles is None or turns.shape[1] == shape.head_dim, "rope_write_kv: angles are [rows, head_dim]")
    require(turned.shape[1] % shape.head_dim == 0, "rope_write_kv: q holds whole heads")
    num_heads = 0 if angles is None else turned.shape[1] // shape.head_dim
    if len(k):
        _rope_write_kv[(len(k), num_heads + shape.num_kv_heads)](
            turned,
            k,
            v,
            turns,
            cache.numbers,
            batch.row_lines,
            batch.positions,
            turned.stride(0),
            k.stride(0),
            v.stride(0),
            turns.stride(0),
            cache.first,
            num_heads,
            LINE_NUMBERS=cache.line_numbers,
            BLOCK_SIZE=shape.block_size,
            HEAD_DIM=shape.head_dim,
            PADDED_DIM=padded(shape.head_dim),
            TURNS=angles is not None,
            num_warps=1,
        )
