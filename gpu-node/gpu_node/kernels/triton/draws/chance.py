"""Random numbers without a state, on a device: the function that `gpu_node.executors.draws.counter` explains."""

from __future__ import annotations

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_UNIT = tl.constexpr(2.0**-53)


@triton.jit
def _mix(value):
    """Finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA'14)."""
    value = (value ^ (value >> 30)) * tl.full((), _FIRST, tl.uint64)
    value = (value ^ (value >> 27)) * tl.full((), _SECOND, tl.uint64)
    return value ^ (value >> 31)


@triton.jit
def uniform(seed, position, choice):
    """In [0, 1) with 53 bits, float64; arguments are scalars of 64 bits."""
    golden = tl.full((), _GOLDEN, tl.uint64)
    stream = _mix(seed.to(tl.uint64, bitcast=True) + golden)
    if choice != 0:
        stream = _mix(stream + choice.to(tl.uint64, bitcast=True) * golden)
    number = _mix(stream + (position.to(tl.uint64, bitcast=True) + tl.full((), 1, tl.uint64)) * golden)
    return (number >> 11).to(tl.float64) * _UNIT
