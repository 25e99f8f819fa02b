"""Weights that were not trained: made by shape, on the device that wants them, so that a model runs without its files.

What it says is noise. What a step costs is the real thing, and so is every size: `ModelSpec.load_format`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

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

_NUMBERS_AT_A_TIME = 1 << 24
"""What is made on the way takes some hundred megabytes."""


class DummyWeights:
    """Tensors of given shapes, each made when it is asked for."""

    def __init__(self, stored_shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> None:
        """``stored_shapes``: by canonical name."""
        self._shapes, self._device = stored_shapes, device

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a canonical name, float32 on the device.

        The same name and shape give the same numbers on every device, whatever else is made and however much of a
        tensor is wanted.
        """
        return _tensor(name, self._shapes[name], self._device)


def _tensor(name: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    values = torch.empty(math.prod(shape), device=device)
    for first in range(0, len(values), _NUMBERS_AT_A_TIME):
        part = values[first : first + _NUMBERS_AT_A_TIME]
        part.copy_(_chance(torch.arange(first, first + len(part), device=device), seed_of(name)))
    spread, mean = spread_and_mean(name, shape)
    values.mul_(spread)
    return (values.add_(mean) if mean else values).view(shape)


def _chance(places: torch.Tensor, seed: int) -> torch.Tensor:
    """A number for each place int64: evenly spread, of mean 0 and variance 1.

    Its bits are mixed by shifts and products of integers, as hash functions do, and each product of floats is one that
    every device rounds alike: torch's own generators differ from device to device.
    """
    bits = (places + seed) & WORD
    for shift, factor in ROUNDS:
        bits ^= bits >> shift
        bits = (bits * factor) & WORD
    bits ^= bits >> LAST_SHIFT
    return ((bits >> NUM_UNUSED_BITS).float() * UNIT - 0.5) * WIDTH
