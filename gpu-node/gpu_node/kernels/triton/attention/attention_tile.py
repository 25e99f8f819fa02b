"""What every attention kernel does: some queries of one KV head over a part of a sequence's blocks.

One pass with a running softmax (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018; FlashAttention-2,
2023), in powers of 2.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import dot

UNBOUNDED = 1 << 30
"""The window of attention that has none, in tokens."""


def scale_of(head_dim: int) -> float:
    """What scores are multiplied with, so that their powers of 2 are those of e of ``q k / sqrt(head_dim)``."""
    return math.log2(math.e) / math.sqrt(head_dim)


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
):
    """Attention of ``queries`` [M, PADDED_DIM] at ``positions`` [M] over tokens [begin, end) of a sequence.

    ``lines`` is its block table, ``head`` where in a block the KV head begins. A query sees its own position and those
    before it, ``window`` in all. Returns the weighted sum of values [M, PADDED_DIM] and, as powers of 2, the logarithm
    of the weights' sum [M]: -inf, beside zeros, for a query that sees none of these tokens.
    """
    dims = tl.arange(0, PADDED_DIM)
    in_head = dims < HEAD_DIM
    kind = numbers.dtype.element_ty
    queries = queries.to(kind)
    most = tl.full([queries.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([queries.shape[0]], tl.float32)
    sums = tl.zeros([queries.shape[0], PADDED_DIM], tl.float32)
    for tile in range(begin, end, TILE):
        tokens = tile + tl.arange(0, TILE)
        there = tokens < end
        block = tl.load(lines + tokens // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
        keys_at = block * LINE_NUMBERS + head + (tokens % BLOCK_SIZE) * HEAD_DIM
        keys = tl.load(numbers + keys_at[None, :] + dims[:, None], mask=in_head[:, None] & there[None, :], other=0.0)
        scores = dot(queries, keys, WIDEN) * scale
        sees = there[None, :] & (tokens[None, :] <= positions[:, None])
        sees = sees & (tokens[None, :] > positions[:, None] - window)
        scores = tl.where(sees, scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        anchor = tl.where(now == float("-inf"), 0.0, now)  # nothing seen yet: -inf - -inf is no number
        weights = tl.exp2(scores - anchor[:, None])
        shrink = tl.exp2(most - anchor)
        total = total * shrink + tl.sum(weights, 1)
        values_at = keys_at + BLOCK_SIZE * HEAD_DIM
        # there may be anything behind the last token, and 0 * NaN is NaN
        values = tl.load(
            numbers + values_at[:, None] + dims[None, :], mask=there[:, None] & in_head[None, :], other=0.0
        )
        sums = sums * shrink[:, None] + dot(weights.to(kind), values, WIDEN)
        most = now
    has_seen = total > 0.0
    result = sums / tl.where(has_seen, total, 1.0)[:, None]
    return result, tl.where(has_seen, most + tl.log2(tl.where(has_seen, total, 1.0)), float("-inf"))
