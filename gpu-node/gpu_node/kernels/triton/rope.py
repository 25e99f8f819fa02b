"""Rotary embedding, and the write of keys and values into blocks: alone, or both at once (PagedAttention, §5.1)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import check_rows, launch, padded, require


@triton.jit
def _turn(x, angles, out, num_heads, HALF: tl.constexpr, PADDED_HEADS: tl.constexpr, PADDED_HALF: tl.constexpr):
    """Turn the pairs (i, i + HALF) of the heads of a row; ``angles`` are cosines, then sines.

    Returns the two halves [PADDED_HEADS, PADDED_HALF], rounded as they are stored.
    """
    heads, pairs = tl.arange(0, PADDED_HEADS), tl.arange(0, PADDED_HALF)
    is_pair = pairs < HALF
    here = (heads < num_heads)[:, None] & is_pair[None, :]
    at = heads[:, None] * (2 * HALF) + pairs[None, :]
    first = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    second = tl.load(x + HALF + at, mask=here, other=0.0).to(tl.float32)
    cosine = tl.load(angles + pairs, mask=is_pair, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(angles + HALF + pairs, mask=is_pair, other=0.0).to(tl.float32)[None, :]
    kind = out.dtype.element_ty
    turned_first = (first * cosine - second * sine).to(kind)
    turned_second = (second * cosine + first * sine).to(kind)
    tl.store(out + at, turned_first, mask=here)
    tl.store(out + HALF + at, turned_second, mask=here)
    return turned_first, turned_second


@triton.jit
def _rope(
    x,
    angles,
    out,
    x_stride,
    angles_stride,
    out_stride,
    num_heads,
    HALF: tl.constexpr,
    PADDED_HEADS: tl.constexpr,
    PADDED_HALF: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    own = angles + row * angles_stride
    _turn(x + row * x_stride, own, out + row * out_stride, num_heads, HALF, PADDED_HEADS, PADDED_HALF)


@triton.jit
def _write_kv(
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
    num_kv_heads,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_HEADS: tl.constexpr,
    PADDED_KV_HEADS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    TURNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    HALF: tl.constexpr = HEAD_DIM // 2
    slot = tl.load(positions + row) % BLOCK_SIZE
    line = tl.load(row_lines + row).to(tl.int64)
    keys = numbers + line * LINE_NUMBERS + first + slot * HEAD_DIM
    values = keys + BLOCK_SIZE * HEAD_DIM
    HEAD_STRIDE: tl.constexpr = 2 * BLOCK_SIZE * HEAD_DIM
    kind = numbers.dtype.element_ty
    heads, dims, pairs = tl.arange(0, PADDED_KV_HEADS), tl.arange(0, PADDED_DIM), tl.arange(0, PADDED_HALF)
    is_head = (heads < num_kv_heads)[:, None] & (line >= 0)  # below 0 is `NOWHERE`
    here = is_head & (dims < HEAD_DIM)[None, :]
    at = heads[:, None] * HEAD_DIM + dims[None, :]
    to = heads[:, None] * HEAD_STRIDE + dims[None, :]
    if TURNS:
        own = angles + row * angles_stride
        _turn(q + row * q_stride, own, q + row * q_stride, num_heads, HALF, PADDED_HEADS, PADDED_HALF)
        ours = k + row * k_stride
        one, other = _turn(ours, own, ours, num_kv_heads, HALF, PADDED_KV_HEADS, PADDED_HALF)
        # from registers: what other threads have stored need not be there yet
        pairs_here = is_head & (pairs < HALF)[None, :]
        pairs_to = heads[:, None] * HEAD_STRIDE + pairs[None, :]
        tl.store(keys + pairs_to, one.to(kind), mask=pairs_here)
        tl.store(keys + HALF + pairs_to, other.to(kind), mask=pairs_here)
    else:
        tl.store(keys + to, tl.load(k + row * k_stride + at, mask=here, other=0.0).to(kind), mask=here)
    tl.store(values + to, tl.load(v + row * v_stride + at, mask=here, other=0.0).to(kind), mask=here)


def rope(x: torch.Tensor, angles: torch.Tensor, out: torch.Tensor) -> None:
    """Rotate the heads of ``x`` [rows, heads * head_dim] by ``angles`` [rows, head_dim]; ``out`` may be ``x``."""
    check_rows(x, angles, out)
    head_dim = angles.shape[1]
    require(x.shape == out.shape, "rope: x and out have one shape")
    require(len(x) == len(angles) and x.shape[1] % head_dim == 0, "rope: angles for each row, whole heads")
    require(head_dim % 2 == 0, "rope: head_dim is even")
    num_heads = x.shape[1] // head_dim
    launch(
        _rope,
        (len(x),),
        x,
        angles,
        out,
        x.stride(0),
        angles.stride(0),
        out.stride(0),
        num_heads,
        HALF=head_dim // 2,
        PADDED_HEADS=padded(num_heads),
        PADDED_HALF=padded(head_dim // 2),
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
    require(angles is None or shape.head_dim % 2 == 0, "rope_write_kv: head_dim is even")
    num_heads = 0 if angles is None else turned.shape[1] // shape.head_dim
    launch(
        _write_kv,
        (len(k),),
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
        shape.num_kv_heads,
        LINE_NUMBERS=cache.line_numbers,
        BLOCK_SIZE=shape.block_size,
        HEAD_DIM=shape.head_dim,
        PADDED_HEADS=padded(max(1, num_heads)),
        PADDED_KV_HEADS=padded(shape.num_kv_heads),
        PADDED_DIM=padded(shape.head_dim),
        PADDED_HALF=padded(max(1, shape.head_dim // 2)),
        TURNS=angles is not None,
    )
