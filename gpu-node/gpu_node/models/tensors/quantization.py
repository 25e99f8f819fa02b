"""Weights as int8: symmetric, one scale an output, rounded to nearest; activations are not touched ("weight-only").

What it returns is the model that `ModelSpec.weights = "int8"` asks for. The reference executor computes with the
numbers it stands for, the CPU device with the integers themselves, the same ones (`quantized_array`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gpu_node.graph.stack_names import is_stack

_MAX_INT8 = 127  # symmetric: -128 is not used


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A matrix as integers times one scale for each of its rows."""

    values: torch.Tensor
    """int8 [..., outputs, inputs]."""
    scales: torch.Tensor
    """float32 [..., outputs]."""

    def dequantized(self) -> torch.Tensor:
        """The numbers it stands for, float32 [..., outputs, inputs]."""
        return self.values.to(torch.float32) * self.scales[..., None]


def quantized(weight: torch.Tensor) -> Int8Weight:
    """The nearest integers to ``weight`` [..., outputs, inputs], where the largest number of a row becomes 127.

    A row depends on no other, so weights may be put together before or after. A row of zeros has scale 0.
    """
    weight = weight.to(torch.float32)
    scales = weight.abs().amax(dim=-1) / _MAX_INT8
    divisors = torch.where(scales > 0, scales, 1.0)
    return Int8Weight((weight / divisors[..., None]).round().to(torch.int8), scales)


def int8_weights(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """``weights`` as int8 represents them, in float32. Vectors (norms, biases) and adapters stay as they are."""
    return {
        name: weight if weight.dim() == 1 or is_stack(name) else quantized(weight).dequantized()
        for name, weight in weights.items()
    }
