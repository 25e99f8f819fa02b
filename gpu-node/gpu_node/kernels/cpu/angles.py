"""Rotary angles of every position, as the CPU device keeps them."""

from __future__ import annotations

import numpy as np

from gpu_node.models.tensors.arrays import Float32s


def angle_table(num_positions: int, head_dim: int, theta: float, factors: Float32s | None = None) -> Float32s:
    """`operations.rope_angles` of positions 0, 1, ...: cosines, then sines, [positions, head_dim].

    ``factors`` [head_dim / 2] divide the turns of each pair, as in `operations.scaled_rope_angles`. Angles are float32
    products, as there; cosines and sines are the nearest float32 to those of the angle, whatever the processor, where
    torch's own may be the next but one.
    """
    num_pairs = head_dim // 2
    powers = (np.arange(num_pairs, dtype=np.float32) / np.float32(num_pairs)).astype(np.float64)
    speeds = np.float32(1.0) / np.power(np.float64(np.float32(theta)), powers).astype(np.float32)
    if factors is not None:
        speeds = speeds / factors
    angles = (np.arange(num_positions, dtype=np.float32)[:, None] * speeds).astype(np.float64)
    return np.concatenate((np.cos(angles), np.sin(angles)), axis=-1).astype(np.float32)
