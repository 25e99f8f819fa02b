"""Attention of single rows, each context split among programs (Flash-Decoding: Dao et al., 2023).

Few sequences with long contexts would leave most of a device idle: each program takes a part of a context for the heads
that share a KV head, which are the rows of one product, and a second kernel puts the parts together.

How many parts a context has at most is the grid, which nothing but the number of rows decides; how many it has is found
on the device from its length, so a CUDA graph can replay a launch for any lengths. Where the number of rows is read on
the device, too (`DeviceBatch.counts`), as many programs as fill it divide what there is among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries, parts_of, scale_of, stages_of
from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, launch, num_processors, num_programs, padded

TILE_TOKENS = 64
"""Tokens of a context that a program takes at a time."""
MAX_SPLITS = 64
NUM_WARPS, MOST_STAGES = 2, 4
"""By measurement: few threads a program leave room for many programs, each with four tiles on their way (H100)."""
PROGRAMS_A_PROCESSOR = 4
"""So many run beside each other, and load while others compute."""
COUNTED_PROGRAMS_A_PROCESSOR = 8
"""By measurement, where programs divide among them what there is: as fast as one program a task (H100, H200)."""


def num_splits(num_tasks: int, num_context_tokens: int, num_processors: int) -> int:
    """Into how many parts each context is cut, so that every processor of the device has something to do.

    ``num_tasks``: decodes times KV heads. ``num_context_tokens``: of the longest. A part has one tile at least. Powers
    of two, for each is compiled by itself where parts are put together.
    """
    wanted = PROGRAMS_A_PROCESSOR * num_processors // max(1, num_tasks)
    most = min(wanted, -(-num_context_tokens // TILE_TOKENS), MAX_SPLITS)
    return 1 << (max(1, most).bit_length() - 1)


def most_split(num_kv_heads: int, num_processors: int) -> int:
    """Decodes of a step whose contexts are split, at most: `num_splits` of more is 1."""
    return max(1, PROGRAMS_A_PROCESSOR * num_processors // (2 * num_kv_heads))


@triton.jit(do_not_specialize=["splits", "num_tasks"])
def _decode(
    q,
    numbers,
    out,
    parts,
    logs,
    counts,
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
    splits,
    num_tasks,
    num_kv_heads,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    IS_BOUNDED: tl.constexpr,
    IS_COUNTED: tl.constexpr,
):
    num_splits = splits
    if IS_COUNTED:
        num_splits = tl.load(counts + 2)
        num_tasks = tl.load(counts) * num_splits * num_kv_heads
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
        seen_from, part, num_parts = parts_of(position, window, num_splits, TILE)
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
            if num_splits > 1:
                heads = (decode * num_kv_heads + kv_head) * NUM_SHARED + shared
                own_part = heads * num_splits + split
                tl.store(logs + own_part, log, mask=here)
                tl.store(parts + own_part[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
            else:
                at = row.to(tl.int64) * out_stride + columns[:, None] + dims[None, :]
                tl.store(out + at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["splits"])
def _combine(
    parts,
    logs,
    out,
    counts,
    decodes,
    starts,
    first_rows,
    out_stride,
    window,
    splits,
    PADDED_SPLITS: tl.constexpr,
    TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    IS_COUNTED: tl.constexpr,
):
    decode, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    num_splits, is_split = splits, True
    if IS_COUNTED:
        num_splits = tl.load(counts + 2)
        is_split = (num_splits > 1) & (decode < tl.load(counts))
    if is_split:
        first = (decode * tl.num_programs(1) + head) * num_splits
        places, dims = tl.arange(0, PADDED_SPLITS), tl.arange(0, PADDED_DIM)
        sequence = tl.load(decodes + decode).to(tl.int64)
        _, _, num_parts = parts_of(tl.load(starts + sequence), window, num_splits, TILE)
        here = places < num_parts
        log = tl.load(logs + first + places, mask=here, other=float("-inf"))
        most = tl.max(log, 0)
        weights = tl.exp2(log - tl.where(most == float("-inf"), 0.0, most))
        total = tl.sum(weights, 0)  # 0 for a row that sees nothing
        mask = here[:, None] & (dims < HEAD_DIM)[None, :]
        part = tl.load(parts + (first + places)[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
        result = tl.sum(part * weights[:, None], 0) / tl.where(total > 0.0, total, 1.0)
        row = tl.load(first_rows + sequence).to(tl.int64)
        at = row * out_stride + head * HEAD_DIM + dims
        tl.store(out + at, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where parts of contexts are kept until they are put together; the result's own memory, where none is split."""

    results: torch.Tensor
    logs: torch.Tensor
    num_decodes: int
    """Decodes whose contexts may be split."""
    num_splits: int
    """Of each, at most."""

    @classmethod
    def of(cls, q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, num_splits: int, out: torch.Tensor) -> _Parts:
        """For these decodes; where they are counted on the device, for any number of them."""
        shape, num_decodes, most = cache.shape, len(batch.decodes), len(batch.decodes) * num_splits
        if batch.counts is not None:  # fewer decodes have more parts, so that there are about as many in all
            processors, num_splits = num_processors(q.device), MAX_SPLITS
            num_decodes = min(num_decodes, most_split(shape.num_kv_heads, processors))
            most = max(num_decodes, PROGRAMS_A_PROCESSOR * processors // shape.num_kv_heads)
        if num_splits == 1:
            return cls(out, out, num_decodes, num_splits)
        num_rows = most * q.shape[1] // shape.head_dim
        results = q.new_empty((num_rows, shape.head_dim), dtype=torch.float32)
        return cls(results, q.new_empty((num_rows,), dtype=torch.float32), num_decodes, num_splits)


def decode_attention(
    q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor, num_splits: int
) -> None:
    """The rows of ``batch.decodes``; arguments as checked by `gpu_node.kernels.triton.attention.attention`.

    ``num_splits`` says nothing where the batch has ``counts``, which say it on the device.
    """
    shape, num_decodes, is_counted = cache.shape, len(batch.decodes), batch.counts is not None
    if num_decodes == 0:
        return
    num_shared = q.shape[1] // (shape.num_kv_heads * shape.head_dim)
    num_tasks = num_decodes * shape.num_kv_heads * num_splits
    programs = num_programs(num_tasks, q.device, PROGRAMS_A_PROCESSOR)
    if is_counted:
        programs = num_processors(q.device) * COUNTED_PROGRAMS_A_PROCESSOR
    is_bounded = is_counted or programs < num_tasks
    parts = _Parts.of(q, cache, batch, num_splits, out)
    launch(
        _decode,
        (programs,) if is_bounded else (num_decodes, shape.num_kv_heads, num_splits),
        q,
        cache.numbers,
        out,
        parts.results,
        parts.logs,
        batch.decodes if batch.counts is None else batch.counts,
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
        TILE=TILE_TOKENS,
        LINE_NUMBERS=cache.line_numbers,
        BLOCK_SIZE=shape.block_size,
        HEAD_DIM=shape.head_dim,
        PADDED_DIM=padded(shape.head_dim, MIN_DOT),
        WIDEN=INTERPRETED,
        IS_BOUNDED=is_bounded,
        IS_COUNTED=is_counted,
        num_warps=NUM_WARPS,
        num_stages=stages_of(cache, TILE_TOKENS, kept_bytes=0, most=MOST_STAGES),
    )
    if parts.num_splits > 1:
        _put_together(parts, cache, batch, window, out, num_splits)


def _put_together(
    parts: _Parts, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor, num_splits: int
) -> None:
    head_dim = cache.shape.head_dim
    launch(
        _combine,
        (parts.num_decodes, out.shape[1] // head_dim),
        parts.results,
        parts.logs,
        out,
        batch.decodes if batch.counts is None else batch.counts,
        batch.decodes,
        batch.starts,
        batch.first_rows,
        out.stride(0),
        window,
        num_splits,
        PADDED_SPLITS=padded(parts.num_splits),
        TILE=TILE_TOKENS,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded(head_dim),
        IS_COUNTED=batch.counts is not None,
    )
