"""Tables of angles: those of the reference, and the nearest float32 to what they are to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpu_node.kernels import operations
from gpu_node.kernels.cpu.angles import angle_table

NUM_POSITIONS = 4096
ONE_STEP = 2.0**-24
"""Between neighbouring float32 below 1; of an angle in radians, hundreds of them where its speed is rounded."""


@pytest.mark.parametrize(("head_dim", "theta"), [(8, 100.0), (64, 10_000.0), (128, 1_000_000.0)])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_they_are_those_of_the_reference(head_dim: int, theta: float, *, is_scaled: bool) -> None:
    positions = torch.arange(NUM_POSITIONS)
    if is_scaled:
        factors = torch.linspace(1.0, 8.0, head_dim // 2)
        expected = operations.scaled_rope_angles(positions, factors, theta)
        table = angle_table(NUM_POSITIONS, head_dim, theta, factors.numpy())
    else:
        expected = operations.rope_angles(positions, head_dim, theta)
        table = angle_table(NUM_POSITIONS, head_dim, theta)
    assert table.dtype == np.float32
    assert table.shape == (NUM_POSITIONS, head_dim)
    difference = (torch.from_numpy(table) - expected).abs()
    assert float(difference.max()) < NUM_POSITIONS * 2 * ONE_STEP
    assert float((difference > 2 * ONE_STEP).float().mean()) < 0.05, "but for pairs whose speed is rounded otherwise"


def test_each_is_the_nearest_number() -> None:
    table = angle_table(NUM_POSITIONS, 4, 100.0)  # turns of 1 and of 1 / 10
    slow = float(np.float32(1.0) / np.float32(10.0))
    for position in range(0, NUM_POSITIONS, 7):
        angles = float(position), float(np.float32(np.float32(position) * np.float32(slow)))
        expected = [np.float32(turn(angle)) for turn in (math.cos, math.sin) for angle in angles]
        assert table[position].tolist() == expected
