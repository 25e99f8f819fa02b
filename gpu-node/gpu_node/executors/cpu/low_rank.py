"""Adapters' matrices for the CPU device: those of each adapter packed by themselves, at its own rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_node.kernels.cpu import CpuProgram
from gpu_node.models.tensors.arrays import Float32s

NO_MATRIX = -1
"""Of an adapter that leaves the product alone."""


def packed_adapters(target: CpuProgram, shrink: Float32s, expand: Float32s) -> tuple[Sequence[int], Sequence[int]]:
    """Pack stacks [adapters, rank, inputs] and [adapters, outputs, rank]; of each adapter, the weights of the two."""
    packed = [_packed(target, a, b) for a, b in zip(shrink, expand, strict=True)]
    return [a for a, _ in packed], [b for _, b in packed]


def _packed(target: CpuProgram, a: Float32s, b: Float32s) -> tuple[int, int]:
    used = np.flatnonzero(a.any(axis=1) & b.any(axis=0))
    if not len(used):
        return NO_MATRIX, NO_MATRIX
    rank = int(used[-1]) + 1
    padding = rank % 2  # products take inputs two by two
    a, b = (np.pad(a[:rank], ((0, padding), (0, 0))), np.pad(b[:, :rank], ((0, 0), (0, padding))))
    return target.weight(a, is_exact=True), target.weight(b, is_exact=True)
