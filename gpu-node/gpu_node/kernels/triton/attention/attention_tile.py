"""What every attention kernel does: some queries of one KV head over a part of a sequence's blocks.

One pass with a running softmax (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018; FlashAttention-2,
2023), in powers of 2.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from gpu_node.kernels.triton.cache import LayerCache
from gpu_node.kernels.triton.launch import MIN_DOT, dot, num_stages, padded

UNBOUNDED = 1 << 30
"""The window of attention that has none, in tokens."""


def scale_of(head_dim: int) -> float:
    """What scores are multiplied with, so that their powers of 2 are those of e of ``q k / sqrt(head_dim)``."""
    return math.log2(math.e) / math.sqrt(head_dim)


def stages_of(cache: LayerCache, tile_tokens: int, kept_bytes: int, most: int) -> int:
    """Tiles of keys and values that are loaded ahead, beside ``kept_bytes`` of shared memory."""
    token_bytes = 2 * padded(cache.shape.head_dim, MIN_DOT) * cache.numbers.element_size()
    return num_stages(tile_tokens * token_bytes, kept_bytes, most)


@triton.jit
def parts_of(position, window, num_splits, TILE: tl.constexpr):
    """Of what a row sees: the first token, the tokens of a part, and the number of parts, one at least."""
    seen_from = tl.maximum(position + 1 - window, 0)
    num_tokens = position + 1 - seen_from
    part = tl.cdiv(tl.cdiv(num_tokens, TILE), num_splits) * TILE
    return seen_from, part, tl.maximum(tl.cdiv(num_tokens, tl.maximum(part, 1)), 1)


@triton.jit
def load_queries(q, q_stride, rows, columns, here, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr):
    """[queries, PADDED_DIM]: heads that begin at ``columns`` of ``rows``, zeros where not ``here``."""
    dims = tl.arange(0, PADDED_DIM)
    at = rows.to(tl.int64)[:, None] * q_stride + columns[:, None] + dims[None, :]
    return tl.load(q + at, mask=here[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def attend(
    queries,
    positions,
    numbers,
    lines,
    head,
    begin,
    end,
    window,
    scale,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    BOTH_SIDES: tl.constexpr = False,
):
    """Attention of ``queries`` [M, PADDED_DIM] at ``positions`` [M] over tokens [begin, end) of a sequence.

    ``lines`` is its block table, ``head`` where in a block the KV head begins. A query sees its own position and those
    before it, ``window`` in all; with BOTH_SIDES as many from its own on, too. Returns the weighted sum of values [M,
    PADDED_DIM] and, as powers of 2, the logarithm of the weights' sum [M]: -inf, beside zeros, for a query that sees
    none of these tokens.
    """
    queries = queries.to(numbers.dtype.element_ty)
    most = tl.full([queries.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([queries.shape[0]], tl.float32)
    sums = tl.zeros([queries.shape[0], PADDED_DIM], tl.float32)
    # tiles that every query sees whole come first: nothing has to be compared there
    seen_to = tl.min(positions) + (window if BOTH_SIDES else 1)
    num_seen = tl.maximum(tl.minimum(seen_to, end) - begin, 0) // TILE * TILE
    whole_end = begin + tl.where(tl.max(positions) - window < begin, num_seen, 0)
    for tile in range(begin, whole_end, TILE):
        most, total, sums = _attend_tile(
            queries, positions, numbers, lines, head, tile, end, window, scale, most, total, sums,
            TILE, LINE_NUMBERS, BLOCK_SIZE, HEAD_DIM, PADDED_DIM, WIDEN, BOTH_SIDES, IS_WHOLE=True,
        )  # fmt: skip
    for tile in range(whole_end, end, TILE):
        most, total, sums = _attend_tile(
            queries, positions, numbers, lines, head, tile, end, window, scale, most, total, sums,
            TILE, LINE_NUMBERS, BLOCK_SIZE, HEAD_DIM, PADDED_DIM, WIDEN, BOTH_SIDES, IS_WHOLE=False,
        )  # fmt: skip
    has_seen = total > 0.0
    result = sums / tl.where(has_seen, total, 1.0)[:, None]
    return result, tl.where(has_seen, most + tl.log2(tl.where(has_seen, total, 1.0)), float("-inf"))


@triton.jit
def _attend_tile(
    queries,
    positions,
    numbers,
    lines,
    head,
    tile,
    end,
    window,
    scale,
    most,
    total,
    sums,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    BOTH_SIDES: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """The running softmax, with a tile of tokens more, which every query sees where it is whole."""
    dims = tl.arange(0, PADDED_DIM)
    tokens = tile + tl.arange(0, TILE)
    if IS_WHOLE:
        there = tokens >= tile
        block = tl.load(lines + tokens // BLOCK_SIZE).to(tl.int64)
    else:
        there = tokens < end
        block = tl.load(lines + tokens // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
    keys_at = block * LINE_NUMBERS + head + (tokens % BLOCK_SIZE) * HEAD_DIM
    keys_from = numbers + keys_at[None, :] + dims[:, None]
    # there may be anything behind the last token, and 0 * NaN is NaN
    values_from = numbers + (keys_at + BLOCK_SIZE * HEAD_DIM)[:, None] + dims[None, :]
    if IS_WHOLE and HEAD_DIM == PADDED_DIM:
        keys, values = tl.load(keys_from), tl.load(values_from)
    else:
        here = (dims < HEAD_DIM)[:, None] & there[None, :]
        keys = tl.load(keys_from, mask=here, other=0.0)
        values = tl.load(values_from, mask=(dims < HEAD_DIM)[None, :] & there[:, None], other=0.0)
    scores = dot(queries, keys, WIDEN) * scale
    if not IS_WHOLE:
        ahead = window - 1 if BOTH_SIDES else 0
        sees = there[None, :] & (tokens[None, :] <= positions[:, None] + ahead)
        sees = sees & (tokens[None, :] > positions[:, None] - window)
        scores = tl.where(sees, scores, float("-inf"))
    now = tl.maximum(most, tl.max(scores, 1))
    anchor = tl.where(now == float("-inf"), 0.0, now)  # nothing seen yet: -inf - -inf is no number
    weights = tl.exp2(scores - anchor[:, None])
    shrink = tl.exp2(most - anchor)
    total = total * shrink + tl.sum(weights, 1)
    sums = sums * shrink[:, None] + dot(weights.to(values.dtype), values, WIDEN)
    return now, total, sums
