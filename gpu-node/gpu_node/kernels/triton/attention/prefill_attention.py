"""Attention of many rows of a sequence: prefill, a chunk of it, or recomputing. Sequences of any lengths in one launch.

A program takes some neighbouring rows and, of each, all heads that share a KV head: one product has them all, so a
short chunk fills it as well as a long one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries, scale_of, stages_of
from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, launch, num_programs, padded

TILE_QUERIES = 128
"""Rows times heads that share a KV head that a program takes, unless one row has more."""
TILE_TOKENS = 64
WIDE_TILE_TOKENS, WIDE_WARPS = 16, 8
"""Of float32, whose products no matrix unit makes: all of a tile's are unrolled, which a larger one takes long to
compile."""
NUM_WARPS, MOST_STAGES = 4, 3
"""By measurement: a warpgroup's products take 64 queries, and two of them in a row use what they load (H100)."""
PROGRAMS_A_PROCESSOR = 2
"""So many run beside each other, by their registers."""


def rows_together(num_shared: int) -> int:
    """Rows that a program takes where ``num_shared`` heads share a KV head."""
    return max(1, TILE_QUERIES // num_shared)


@triton.jit(do_not_specialize=["num_tasks"])
def _prefill(
    q,
    numbers,
    out,
    counts,
    tiles,
    starts,
    first_rows,
    num_rows,
    block_lines,
    first_blocks,
    q_stride,
    out_stride,
    first,
    window,
    scale,
    num_tasks,
    num_kv_heads,
    ROWS: tl.constexpr,
    NUM_SHARED: tl.constexpr,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    IS_BOUNDED: tl.constexpr,
    IS_COUNTED: tl.constexpr,
    BOTH_SIDES: tl.constexpr,
):
    # with a constant 1 the compiler drops the loop, which costs registers
    own, step = tl.program_id(0), tl.num_programs(0)
    for turn in range(tl.cdiv(num_tasks - own, step) if IS_BOUNDED else 1):
        is_there = True
        if IS_BOUNDED:
            task = own + turn * step
            tile, kv_head = tl.full([], task // num_kv_heads, tl.int64), task % num_kv_heads
        else:
            # the last rows of a prompt have most to do: an instance that begins with them does not end with them
            tile, kv_head = tl.num_programs(0) - 1 - tl.program_id(0).to(tl.int64), tl.program_id(1)
            if IS_COUNTED:
                is_there = tile < tl.load(counts + 1)
        if is_there:
            sequence, first_of_tile = tl.load(tiles + 2 * tile).to(tl.int64), tl.load(tiles + 2 * tile + 1)
            start, length = tl.load(starts + sequence), tl.load(num_rows + sequence)
            last = tl.minimum(first_of_tile + ROWS, length)
            query = tl.arange(0, QUERIES)
            rows = first_of_tile + query // NUM_SHARED
            here = (query < ROWS * NUM_SHARED) & (rows < last)
            columns = (kv_head * NUM_SHARED + query % NUM_SHARED) * HEAD_DIM
            batch_rows = tl.load(first_rows + sequence) + rows
            queries = load_queries(q, q_stride, batch_rows, columns, here, HEAD_DIM, PADDED_DIM)
            end = start + last
            if BOTH_SIDES:
                end = tl.minimum(start + length, end - 1 + window)
            result, _ = attend(
                queries,
                start + rows,
                numbers,
                block_lines + tl.load(first_blocks + sequence),
                first + kv_head * (2 * BLOCK_SIZE * HEAD_DIM),
                tl.maximum(start + first_of_tile + 1 - window, 0),
                end,
                window,
                scale,
                TILE,
                LINE_NUMBERS,
                BLOCK_SIZE,
                HEAD_DIM,
                PADDED_DIM,
                WIDEN,
                BOTH_SIDES,
            )
            dims = tl.arange(0, PADDED_DIM)
            at = batch_rows.to(tl.int64)[:, None] * out_stride + columns[:, None] + dims[None, :]
            tl.store(out + at, result.to(out.dtype.element_ty), mask=here[:, None] & (dims < HEAD_DIM)[None, :])


def prefill_attention(
    q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor, *, both_sides: bool = False
) -> None:
    """The rows of ``batch.tiles``; arguments as checked by `gpu_node.kernels.triton.attention.attention`.

    ``both_sides``: each row sees as many rows behind it as before it.
    """
    shape = cache.shape
    num_shared = q.shape[1] // (shape.num_kv_heads * shape.head_dim)
    queries, padded_dim = padded(batch.rows_together * num_shared, MIN_DOT), padded(shape.head_dim, MIN_DOT)
    num_tasks = len(batch.tiles) * shape.num_kv_heads
    is_counted, is_wide = batch.counts is not None, q.element_size() > 2
    tile_tokens = WIDE_TILE_TOKENS if is_wide else TILE_TOKENS
    programs = num_tasks if is_counted else num_programs(num_tasks, q.device, PROGRAMS_A_PROCESSOR)
    launch(
        _prefill,
        (programs,) if programs < num_tasks else (len(batch.tiles), shape.num_kv_heads),
        q,
        cache.numbers,
        out,
        batch.tiles if batch.counts is None else batch.counts,
        batch.tiles,
        batch.starts,
        batch.first_rows,
        batch.num_rows,
        batch.block_lines,
        batch.first_blocks,
        q.stride(0),
        out.stride(0),
        cache.first,
        window,
        scale_of(shape.head_dim),
        num_tasks,
        shape.num_kv_heads,
        ROWS=batch.rows_together,
        NUM_SHARED=num_shared,
        QUERIES=queries,
        TILE=tile_tokens,
        LINE_NUMBERS=cache.line_numbers,
        BLOCK_SIZE=shape.block_size,
        HEAD_DIM=shape.head_dim,
        PADDED_DIM=padded_dim,
        WIDEN=INTERPRETED,
        IS_BOUNDED=programs < num_tasks,
        IS_COUNTED=is_counted,
        BOTH_SIDES=both_sides,
        num_warps=WIDE_WARPS if is_wide else NUM_WARPS,
        num_stages=stages_of(cache, tile_tokens, queries * padded_dim * q.element_size(), MOST_STAGES),
    )
