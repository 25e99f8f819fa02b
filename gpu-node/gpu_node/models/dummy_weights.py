"""Weights that nobody trained: made by shape, on the device that wants them, so that a model runs without its files.

What it says is noise. What a step costs is the real thing, and so is every size: `ModelSpec.load_format`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import torch

_GAIN_SPREAD = 0.1
_BIAS_SPREAD = 0.02


def read_tensors(
    stored_shapes: Mapping[str, tuple[int, ...]], device: torch.device
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors ``stored_shapes`` (by canonical name), one after another: float32 on ``device``.

    The same name and shape give the same numbers on devices of the same type, whatever else is made and however much of
    a tensor is wanted. Only one is there at a time, if whoever takes it keeps a copy of what it wants.
    """
    for name, shape in stored_shapes.items():
        yield name, _tensor(name, shape, device)


def _tensor(name: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Scaled so that numbers neither grow nor vanish: sums over the inputs of a matrix have the variance of one input,
    gains of norms are about 1 and biases small.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    values = torch.randn(shape, generator=torch.Generator(device).manual_seed(seed), device=device)
    if len(shape) > 1:
        return values.mul_(shape[-1] ** -0.5)
    if name.endswith("_bias"):
        return values.mul_(_BIAS_SPREAD)
    return values.mul_(_GAIN_SPREAD).add_(1.0)
