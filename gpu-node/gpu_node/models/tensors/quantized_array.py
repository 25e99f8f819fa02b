"""`quantization.quantized` by numpy: the very integers and scales, for devices that compute without torch."""

from __future__ import annotations

import numpy as np

from gpu_node.models.tensors.arrays import Float32s, Int8s

_MAX_INT8 = 127  # symmetric: -128 is not used
_NUMBERS_AT_A_TIME = 1 << 17
"""So that what is made of them on the way stays in a processor's cache."""


def quantized_array(weight: Float32s) -> tuple[Int8s, Float32s]:
    """The nearest integers to ``weight`` [outputs, inputs], where the largest number of a row becomes 127.

    And one scale for each row, [outputs]: 0 for a row of zeros.
    """
    outputs, inputs = weight.shape
    values, scales = np.empty((outputs, inputs), dtype=np.int8), np.empty(outputs, dtype=np.float32)
    step = max(1, _NUMBERS_AT_A_TIME // max(1, inputs))
    for first in range(0, outputs, step):
        rows = slice(first, first + step)
        scales[rows] = np.abs(weight[rows]).max(axis=-1) / np.float32(_MAX_INT8)
        divisors = np.where(scales[rows] > 0, scales[rows], np.float32(1.0))
        values[rows] = np.rint(weight[rows] / divisors[:, None])
    return values, scales
