"""Weights that nobody trained: made by shape, on the device that wants them, so that a model runs without its files.

What it says is noise. What a step costs is the real thing, and so is every size: `ModelSpec.load_format`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch

_GAIN_SPREAD = 0.1
_BIAS_SPREAD = 0.02
_WORD = (1 << 32) - 1
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
    """Scaled so that numbers neither grow nor vanish: sums over the inputs of a matrix have the variance of one input,
    gains of norms are about 1 and biases small.
    """
    values = torch.empty(math.prod(shape), device=device)
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    for first in range(0, len(values), _NUMBERS_AT_A_TIME):
        part = values[first : first + _NUMBERS_AT_A_TIME]
        part.copy_(_chance(torch.arange(first, first + len(part), device=device), seed))
    values = values.view(shape)
    if len(shape) > 1:
        return values.mul_(shape[-1] ** -0.5)
    if name.endswith("_bias"):
        return values.mul_(_BIAS_SPREAD)
    return values.mul_(_GAIN_SPREAD).add_(1.0)


def _chance(places: torch.Tensor, seed: int) -> torch.Tensor:
    """A number for each place int64: evenly spread, of mean 0 and variance 1.

    Its bits are mixed by shifts and products of integers, as hash functions do, and each product of floats is one that
    every device rounds alike: torch's own generators differ from device to device.
    """
    bits = (places + seed) & _WORD
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        bits ^= bits >> shift
        bits = (bits * factor) & _WORD
    bits ^= bits >> 15
    return ((bits >> 8).float() * 2.0**-24 - 0.5) * math.sqrt(12.0)
