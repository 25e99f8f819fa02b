"""What the numbers of untrained weights are made of, whichever package computes them: a seed, a hash, a width."""

from __future__ import annotations

import hashlib
import math

WORD = (1 << 32) - 1
ROUNDS = ((16, 0x21F0AAAD), (15, 0x735A2D97))
"""A word's bits are mixed so: shifted onto themselves, then multiplied, and so on."""
LAST_SHIFT = 15
NUM_UNUSED_BITS = 8
"""A float32 holds all others."""
UNIT = 2.0**-24
WIDTH = math.sqrt(12.0)
"""Of numbers that are evenly spread with variance 1."""
_GAIN_SPREAD = 0.1
_BIAS_SPREAD = 0.02


def seed_of(name: str) -> int:
    """Of a tensor: one of 32 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])


def spread_and_mean(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """So that numbers neither grow nor vanish: sums over the inputs of a matrix have the variance of one input,
    gains of norms are about 1 and biases small.
    """
    if len(shape) > 1:
        return float(shape[-1] ** -0.5), 0.0
    if name.endswith("_bias"):
        return _BIAS_SPREAD, 0.0
    return _GAIN_SPREAD, 1.0
