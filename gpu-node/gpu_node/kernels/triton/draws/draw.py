"""From rows of logits to tokens: mask, temperature, top-k, top-p, min-p, and a draw from the cumulative distribution.

The order of `gpu_node.executors.draws.sampler`, which is the truth, with its float64 weights, bounds and random
numbers, so that the same logits give the same tokens. One program draws one token: a pass for the largest logit of each
chunk, one that puts aside what a filter could keep, the search for the bound, and the draw among what is left.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.draws.chance import uniform
from gpu_node.kernels.triton.draws.cutoff import cutoff, weigh
from gpu_node.kernels.triton.draws.draw_arrays import DrawArrays
from gpu_node.kernels.triton.launch import launch, require

CHUNK_LOGITS = 128
"""Logits of which the largest is noted."""
TILE_LOGITS = 1024
DRAWS_AT_ONCE = 256
"""More are drawn in turns: each needs room for a row of candidates, 12 bytes a token of the vocabulary."""

_NO_WEIGHT = tl.constexpr(746.0)
"""e to the minus this is 0 in float64."""


@triton.jit
def _allowed(mask, num_bytes, tokens):
    """Whether these tokens may be drawn: the bits of ``mask`` [num_bytes]; any may where that is empty."""
    within = tokens // 8 < num_bytes
    byte = tl.load(mask + tokens // 8, mask=within, other=0).to(tl.int32)
    return (num_bytes == 0) | (((byte >> (tokens % 8)) & 1) != 0)


@triton.jit
def _survey(row, vocab_size, mask, num_mask_bytes, maxima, TILE: tl.constexpr, CHUNK: tl.constexpr):
    """Note the largest of each chunk that is allowed; the largest of all, the first token that has it, and how many
    are not finite, allowed or not."""
    CHUNKS: tl.constexpr = TILE // CHUNK
    most = tl.full((), float("-inf"), tl.float32)
    best = tl.full((), 0, tl.int32)
    num_bad = tl.full((), 0, tl.int32)
    for first in range(0, vocab_size, TILE):
        tokens = first + tl.arange(0, TILE)
        here = tokens < vocab_size
        logits = tl.load(row + tokens, mask=here, other=float("-inf"))
        num_bad += tl.sum((here & ~(tl.abs(logits) < float("inf"))).to(tl.int32), 0)
        logits = tl.where(_allowed(mask, num_mask_bytes, tokens), logits, float("-inf"))
        chunks = first // CHUNK + tl.arange(0, CHUNKS)
        tl.store(maxima + chunks, tl.max(tl.reshape(logits, [CHUNKS, CHUNK]), 1))
        largest = tl.max(logits, 0)
        place = tl.min(tl.where(logits == largest, tokens, vocab_size), 0)
        best = tl.where(largest > most, place, best)
        most = tl.maximum(largest, most)
    return most, best, num_bad


@triton.jit
def _put_aside(row, vocab_size, mask, num_mask_bytes, bound, most, temperature, values, token_ids, TILE: tl.constexpr):
    """Copy what is allowed and at least ``bound``, in the order of ids; how many those are, and what all that is
    allowed weighs."""
    count = tl.full((), 0, tl.int32)
    whole = tl.full((), 0.0, tl.float64)
    for first in range(0, vocab_size, TILE):
        tokens = first + tl.arange(0, TILE)
        here = (tokens < vocab_size) & _allowed(mask, num_mask_bytes, tokens)
        logits = tl.load(row + tokens, mask=here, other=float("-inf"))
        whole += tl.sum(weigh(logits, most, temperature), 0)
        kept = here & (logits.to(tl.float64) >= bound)
        places = count + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(values + places, logits, mask=kept)
        tl.store(token_ids + places, tokens, mask=kept)
        count += tl.sum(kept.to(tl.int32), 0)
    return count, whole


@triton.jit
def _weight_of_top(values, count, top_k, least, most, temperature, TILE: tl.constexpr):
    """What the ``top_k`` largest weigh: those above the last of them, ``least``, and of its equals as many as fit."""
    num_above = tl.full((), 0, tl.int64)
    weight = tl.full((), 0.0, tl.float64)
    for first in range(0, count, TILE):
        places = first + tl.arange(0, TILE)
        logits = tl.load(values + places, mask=places < count, other=float("-inf"))
        is_above = logits > least
        num_above += tl.sum(is_above.to(tl.int64), 0)
        weight += tl.sum(tl.where(is_above, weigh(logits, most, temperature), 0.0), 0)
    return weight + (top_k - num_above).to(tl.float64) * weigh(least, most, temperature)


@triton.jit
def _pick(values, count, least, most, temperature, chance, TILE: tl.constexpr):
    """The first place whose cumulative weight is above the part ``chance`` of the whole; the last that weighs anything,
    where that part is rounded up to the whole. What is below ``least`` weighs nothing."""
    whole = tl.full((), 0.0, tl.float64)
    last = tl.full((), 0, tl.int32)
    for first in range(0, count, TILE):
        places = first + tl.arange(0, TILE)
        logits = tl.load(values + places, mask=places < count, other=float("-inf"))
        weights = tl.where(logits.to(tl.float64) >= least, weigh(logits, most, temperature), 0.0)
        whole += tl.sum(weights, 0)
        last = tl.maximum(last, tl.max(tl.where(weights > 0.0, places, 0), 0))
    target = chance * whole
    found = last
    before = tl.full((), 0.0, tl.float64)
    for first in range(0, count, TILE):
        places = first + tl.arange(0, TILE)
        logits = tl.load(values + places, mask=places < count, other=float("-inf"))
        weights = tl.where(logits.to(tl.float64) >= least, weigh(logits, most, temperature), 0.0)
        is_above = (before + tl.cumsum(weights, 0) > target) & (weights > 0.0)
        found = tl.minimum(found, tl.min(tl.where(is_above, places, count), 0))
        before += tl.sum(weights, 0)
    return found


@triton.jit
def _draw(
    logits,
    adjusted,
    logits_stride,
    vocab_size,
    rows,
    adjusted_rows,
    temperatures,
    tops_k,
    tops_p,
    min_p_margins,
    nucleus_margins,
    seeds,
    positions,
    choices,
    masks,
    first_mask_bytes,
    nums_mask_bytes,
    maxima,
    num_maxima,
    values,
    token_ids,
    tokens,
    cells,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    draw = tl.program_id(0)
    row = logits + tl.load(rows + draw).to(tl.int64) * logits_stride
    adjusted_row = tl.load(adjusted_rows + draw).to(tl.int64)
    if adjusted_row >= 0:
        row = adjusted + adjusted_row * vocab_size
    maxima += draw.to(tl.int64) * num_maxima
    mask, num_mask_bytes = masks + tl.load(first_mask_bytes + draw), tl.load(nums_mask_bytes + draw)
    largest, token, num_bad = _survey(row, vocab_size, mask, num_mask_bytes, maxima, TILE, CHUNK)
    temperature = tl.load(temperatures + draw)
    if num_bad > 0:
        token = tl.full((), -1, tl.int32)
    elif temperature > 0.0:
        tl.debug_barrier()  # all threads have written what all read now
        values += draw.to(tl.int64) * vocab_size
        token_ids += draw.to(tl.int64) * vocab_size
        most = largest.to(tl.float64)
        top_k, top_p = tl.load(tops_k + draw), tl.load(tops_p + draw)
        least = most + tl.load(min_p_margins + draw)
        bound = most - _NO_WEIGHT * temperature
        if top_p >= 1.0:  # else a nucleus is of all that top-k leaves, likely enough for min-p or not
            bound = tl.maximum(bound, least)
        elif top_k == 0:
            bound = tl.maximum(bound, most + tl.load(nucleus_margins + draw))
        if top_k > 0:
            some = cutoff(maxima, num_maxima, top_k.to(tl.float64), most, temperature, True, TILE)
            bound = tl.maximum(bound, some.to(tl.float64))
        count, whole = _put_aside(
            row, vocab_size, mask, num_mask_bytes, bound, most, temperature, values, token_ids, TILE
        )
        tl.debug_barrier()
        if top_k > 0:
            last_of_top = cutoff(values, count, top_k.to(tl.float64), most, temperature, True, TILE)
            least = tl.maximum(least, last_of_top.to(tl.float64))
            if top_p < 1.0:
                whole = _weight_of_top(values, count, top_k, last_of_top, most, temperature, TILE)
        if top_p < 1.0:
            last_of_nucleus = cutoff(values, count, top_p * whole, most, temperature, False, TILE)
            least = tl.maximum(least, last_of_nucleus.to(tl.float64))
        chance = uniform(tl.load(seeds + draw), tl.load(positions + draw), tl.load(choices + draw))
        token = tl.load(token_ids + _pick(values, count, least, most, temperature, chance, TILE))
    tl.store(tokens + draw, token)
    tl.store(cells + draw, tl.maximum(token, 0))  # a step that counts on it has to run all the same


def draw_tokens(
    logits: torch.Tensor, adjusted: torch.Tensor, draws: DrawArrays, tokens: torch.Tensor, cells: torch.Tensor
) -> None:
    """Draw from ``logits`` float32 [rows, vocabulary] → ``tokens`` int32 [draws], -1 where they are not finite.

    ``adjusted``: rows that bias and penalties have changed (`gpu_node.kernels.triton.draws.adjust`), float32 without
    gaps. ``cells`` int32 [draws] get the tokens too, 0 in place of -1: where steps that are submitted later find them.
    """
    require(logits.dtype == adjusted.dtype == torch.float32, "draw: logits are float32", logits)
    require(logits.dim() == 2 and logits.stride(1) == 1, "draw: logits are [rows, vocabulary]", logits)
    require(adjusted.is_contiguous() and adjusted.shape[1:] == logits.shape[1:], "draw: adjusted rows", adjusted)
    require(tokens.shape == cells.shape == draws.rows.shape, "draw: a token and a cell for each draw", tokens)
    require(tokens.dtype == cells.dtype == torch.int32, "draw: tokens and cells are int32", tokens)
    vocab_size = logits.shape[1]
    num_maxima = triton.cdiv(vocab_size, TILE_LOGITS) * (TILE_LOGITS // CHUNK_LOGITS)
    at_once = min(DRAWS_AT_ONCE, len(tokens))
    maxima = logits.new_empty((at_once, num_maxima))
    values = logits.new_empty((at_once, vocab_size))
    token_ids = tokens.new_empty((at_once, vocab_size))
    for first in range(0, len(tokens), DRAWS_AT_ONCE):
        some = slice(first, min(first + DRAWS_AT_ONCE, len(tokens)))
        launch(
            _draw,
            (some.stop - some.start,),
            logits,
            adjusted,
            logits.stride(0),
            vocab_size,
            draws.rows[some],
            draws.adjusted_rows[some],
            draws.temperatures[some],
            draws.tops_k[some],
            draws.tops_p[some],
            draws.min_p_margins[some],
            draws.nucleus_margins[some],
            draws.seeds[some],
            draws.positions[some],
            draws.choices[some],
            draws.masks,
            draws.first_mask_bytes[some],
            draws.nums_mask_bytes[some],
            maxima,
            num_maxima,
            values,
            token_ids,
            tokens[some],
            cells[some],
            TILE=TILE_LOGITS,
            CHUNK=CHUNK_LOGITS,
            num_warps=8,
            enable_fp_fusion=False,  # every weight is made by the operations that make it elsewhere
        )
