"""The least logit that top-k or top-p keeps, without putting logits in order: a search over their bits.

Four bits of the answer a pass, from the highest: of the sixteen numbers that they may make, the largest above which
there is still enough. Eight passes find a float32 exactly, whatever the logits are like.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weigh(logits, most, temperature):
    """Weights in a draw, float64: e ** ((logit - most) / temperature)."""
    return tl.exp((logits.to(tl.float64) - most) / temperature)


@triton.jit
def _key(logits):
    """uint32 in the order of the numbers."""
    bits = logits.to(tl.uint32, bitcast=True)
    return bits ^ tl.where((bits >> 31) != 0, tl.full((), 0xFFFFFFFF, tl.uint32), tl.full((), 0x80000000, tl.uint32))


@triton.jit
def _number(key):
    """The float32 whose key this is."""
    flip = tl.where((key >> 31) != 0, tl.full((), 0x80000000, tl.uint32), tl.full((), 0xFFFFFFFF, tl.uint32))
    return (key ^ flip).to(tl.float32, bitcast=True)


@triton.jit
def cutoff(values, num_values, wanted, most, temperature, COUNTS: tl.constexpr, TILE: tl.constexpr):
    """The largest number such that ``values`` [num_values] from there on come to ``wanted``; -inf if they never do.

    Each counts 1, or where not ``COUNTS`` as much as it weighs.
    """
    DIGITS: tl.constexpr = 16
    found = tl.full((), 0, tl.uint32)
    shift = tl.full((), 28, tl.uint32)
    for _ in range(8):
        pivots = found + (tl.arange(0, DIGITS).to(tl.uint32) << shift)
        amounts = tl.zeros([DIGITS], tl.float64)
        for first in range(0, num_values, TILE):
            places = first + tl.arange(0, TILE)
            here = places < num_values
            logits = tl.load(values + places, mask=here, other=float("-inf"))
            each = here.to(tl.float64) if COUNTS else weigh(logits, most, temperature)
            amounts += tl.sum(tl.where(_key(logits)[:, None] >= pivots[None, :], each[:, None], 0.0), 0)
        digit = tl.sum((amounts >= wanted).to(tl.int32), 0) - 1
        found += tl.maximum(digit, 0).to(tl.uint32) << shift
        shift -= 4
    return tl.where(found == 0, float("-inf"), _number(found))
