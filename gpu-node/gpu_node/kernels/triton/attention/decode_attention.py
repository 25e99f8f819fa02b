"""Attention of single rows, each context split among programs (Flash-Decoding: Dao et al., 2023).

Few sequences with long contexts would leave most of a device idle: each program takes a part of a context for the heads
that share a KV head, which are the rows of one product, and a second kernel puts the parts together.

How many parts a context has at most is the grid, which nothing but the number of rows decides; how many it has is found
on the device from its length, so a CUDA graph can replay a launch for any lengths.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries, scale_of
from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, launch, num_programs, padded

TILE_TOKENS = 64
"""Tokens of a context that a program takes at a time."""
MAX_SPLITS = 64
PROGRAMS_A_PROCESSOR = 4
"""So many run beside each other, and load while others compute."""


def num_splits(num_tasks: int, num_context_tokens: int, num_processors: int) -> int:
    """Into how many parts each context is cut, so that every processor of the device has something to do.

    ``num_tasks``: decodes times KV heads. ``num_context_tokens``: of the longest. A part has one tile at least. Powers
    of two, for each number is compiled by itself.
    """
    wanted = PROGRAMS_A_PROCESSOR * num_processors // max(1, num_tasks)
    most = min(wanted, -(-num_context_tokens // TILE_TOKENS), MAX_SPLITS)
    return 1 << (max(1, most).bit_length() - 1)


@triton.jit
def _parts(position, window, num_splits, TILE: tl.constexpr):
    """Of what a row sees: the first token, the tokens of a part, and the number of parts, one at least."""
    seen_from = tl.maximum(position + 1 - window, 0)
    num_tokens = position + 1 - seen_from
    part = tl.cdiv(tl.cdiv(num_tokens, TILE), num_splits) * TILE
    return seen_from, part, tl.maximum(tl.cdiv(num_tokens, tl.maximum(part, 1)), 1)


@triton.jit(do_not_specialize=["num_tasks"])
def _decode(
    q,
    numbers,
    out,
    logs,
    decodes,
    starts,
    first_rows,
    block_lines,
    first_blocks,
    q_stride,
    out_stride,
    first,
    window,
    scale,
    num_splits,
    num_tasks,
    num_kv_heads,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    IS_BOUNDED: tl.constexpr,
):
    # with a constant 1 the compiler drops the loop, which costs registers
    own, step = tl.program_id(0), tl.num_programs(0)
    for turn in range(tl.cdiv(num_tasks - own, step) if IS_BOUNDED else 1):
        if IS_BOUNDED:
            task = own + turn * step
            decode = tl.full([], task // (num_splits * num_kv_heads), tl.int64)
            kv_head, split = task // num_splits % num_kv_heads, task % num_splits
        else:
            decode, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
        sequence = tl.load(decodes + decode).to(tl.int64)
        position, row = tl.load(starts + sequence), tl.load(first_rows + sequence)
        seen_from, part, num_parts = _parts(position, window, num_splits, TILE)
        if split < num_parts:
            begin = seen_from + split * part
            shared, dims = tl.arange(0, PADDED_SHARED), tl.arange(0, PADDED_DIM)
            here = shared < NUM_SHARED
            columns = (kv_head * NUM_SHARED + shared) * HEAD_DIM
            rows = tl.zeros([PADDED_SHARED], tl.int32) + row
            queries = load_queries(q, q_stride, rows, columns, here, HEAD_DIM, PADDED_DIM)
            result, log = attend(
                queries,
                tl.zeros([PADDED_SHARED], tl.int32) + position,
                numbers,
                block_lines + tl.load(first_blocks + sequence),
                first + kv_head * (2 * BLOCK_SIZE * HEAD_DIM),
                begin,
                tl.minimum(begin + part, position + 1),
                window,
                scale,
                TILE,
                LINE_NUMBERS,
                BLOCK_SIZE,
                HEAD_DIM,
                PADDED_DIM,
                WIDEN,
            )
            mask = here[:, None] & (dims < HEAD_DIM)[None, :]
            if IS_SPLIT:
                heads = (decode * num_kv_heads + kv_head) * NUM_SHARED + shared
                parts = heads * num_splits + split
                tl.store(logs + parts, log, mask=here)
                tl.store(out + parts[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
            else:
                at = row.to(tl.int64) * out_stride + columns[:, None] + dims[None, :]
                tl.store(out + at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _combine(
    parts,
    logs,
    out,
    decodes,
    starts,
    first_rows,
    out_stride,
    window,
    num_splits,
    PADDED_SPLITS: tl.constexpr,
    TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    decode, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = (decode * tl.num_programs(1) + head) * num_splits
    splits, dims = tl.arange(0, PADDED_SPLITS), tl.arange(0, PADDED_DIM)
    sequence = tl.load(decodes + decode).to(tl.int64)
    _, _, num_parts = _parts(tl.load(starts + sequence), window, num_splits, TILE)
    here = splits < num_parts
    log = tl.load(logs + first + splits, mask=here, other=float("-inf"))
    most = tl.max(log, 0)
    weights = tl.exp2(log - tl.where(most == float("-inf"), 0.0, most))
    total = tl.sum(weights, 0)  # 0 for a row that sees nothing
    mask = here[:, None] & (dims < HEAD_DIM)[None, :]
    part = tl.load(parts + (first + splits)[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
    result = tl.sum(part * weights[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    row = tl.load(first_rows + sequence).to(tl.int64)
    at = row * out_stride + head * HEAD_DIM + dims
    tl.store(out + at, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)


def decode_attention(
    q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor, num_splits: int
) -> None:
    """The rows of ``batch.decodes``; arguments as checked by `gpu_node.kernels.triton.attention.attention`."""
    shape = cache.shape
    num_decodes = len(batch.decodes)
    num_heads = q.shape[1] // shape.head_dim
    num_shared = num_heads // shape.num_kv_heads
    if num_decodes == 0:
        return
    parts, logs = out, out  # the second is not written where contexts are whole
    if num_splits > 1:
        parts = q.new_empty((num_decodes, num_heads, num_splits, shape.head_dim), dtype=torch.float32)
        logs = q.new_empty((num_decodes, num_heads, num_splits), dtype=torch.float32)
    num_tasks = num_decodes * shape.num_kv_heads * num_splits
    programs = num_programs(num_tasks, q.device, PROGRAMS_A_PROCESSOR)
    launch(
        _decode,
        (programs,) if programs < num_tasks else (num_decodes, shape.num_kv_heads, num_splits),
        q,
        cache.numbers,
        parts,
        logs,
        batch.decodes,
        batch.starts,
        batch.first_rows,
        batch.block_lines,
        batch.first_blocks,
        q.stride(0),
        out.stride(0),
        cache.first,
        window,
        scale_of(shape.head_dim),
        num_splits,
        num_tasks,
        shape.num_kv_heads,
        NUM_SHARED=num_shared,
        PADDED_SHARED=padded(num_shared, MIN_DOT),
        IS_SPLIT=num_splits > 1,
        TILE=TILE_TOKENS,
        LINE_NUMBERS=cache.line_numbers,
        BLOCK_SIZE=shape.block_size,
        HEAD_DIM=shape.head_dim,
        PADDED_DIM=padded(shape.head_dim, MIN_DOT),
        WIDEN=INTERPRETED,
        IS_BOUNDED=programs < num_tasks,
    )
    if num_splits > 1:
        launch(
            _combine,
            (num_decodes, num_heads),
            parts,
            logs,
            out,
            batch.decodes,
            batch.starts,
            batch.first_rows,
            out.stride(0),
            window,
            num_splits,
            PADDED_SPLITS=padded(num_splits),
            TILE=TILE_TOKENS,
            HEAD_DIM=shape.head_dim,
            PADDED_DIM=padded(shape.head_dim),
        )
