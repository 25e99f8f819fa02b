"""Random numbers without a state: a pure function of (seed, choice, position).

A generator with a state would make a token depend on what was drawn before it, for which request and on which node.
Here token number ``position`` of each choice of a request has its own number, whatever else is in the batch, after a
preemption as before it, and on another node as on this one.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """Finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA'14)."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int, choice: int = 0) -> float:
    """Uniform in [0, 1) with 53 bits. The seed is mixed first, so that neighbouring seeds give unrelated streams.

    Choice 0 draws from the seed's own stream, each other choice from one that is split off it: its seed is a number of
    that stream, as in the paper.
    """
    stream = mix(seed + _GOLDEN)
    if choice:
        stream = mix(stream + choice * _GOLDEN)
    return (mix(stream + (position + 1) * _GOLDEN) >> 11) * 2.0**-53
