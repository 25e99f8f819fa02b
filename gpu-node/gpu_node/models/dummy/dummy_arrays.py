"""The numbers of `DummyWeights` by numpy: for devices that compute without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpu_node.models.dummy.dummy_numbers import (
    LAST_SHIFT,
    NUM_UNUSED_BITS,
    ROUNDS,
    UNIT,
    WIDTH,
    WORD,
    seed_of,
    spread_and_mean,
)
from gpu_node.models.tensors.arrays import Float32s

_NUMBERS_AT_A_TIME = 1 << 17
"""So that what is made of them on the way stays in a processor's cache."""


class DummyArrays:
    """Tensors of given shapes, each made when it is asked for."""

    def __init__(self, stored_shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``stored_shapes``: by canonical name."""
        self._shapes = stored_shapes

    def read(self, name: str) -> Float32s:
        """The tensor of a canonical name: the very numbers that `DummyWeights` gives on every device."""
        shape = self._shapes[name]
        values = np.empty(math.prod(shape), dtype=np.float32)
        spread, mean = spread_and_mean(name, shape)
        for first in range(0, len(values), _NUMBERS_AT_A_TIME):
            part = values[first : first + _NUMBERS_AT_A_TIME]
            _fill_by_chance(part, (first + seed_of(name)) & WORD)
            part *= spread
            if mean:
                part += mean
        return values.reshape(shape)


def _fill_by_chance(numbers: Float32s, first: int) -> None:
    """With a number for each place from ``first``: evenly spread, of mean 0 and variance 1."""
    bits = np.arange(len(numbers), dtype=np.uint32)
    bits += np.uint32(first)  # these words begin anew where they end, as `DummyWeights` cuts its own
    for shift, factor in ROUNDS:
        bits ^= bits >> shift
        bits *= np.uint32(factor)
    bits ^= bits >> LAST_SHIFT
    numbers[:] = bits >> NUM_UNUSED_BITS
    numbers *= UNIT
    numbers -= 0.5
    numbers *= WIDTH
