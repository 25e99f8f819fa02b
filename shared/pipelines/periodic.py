"""The shortest period of a layer that repeats, where all orders are known: constraints of differences, no search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NUM_UNROLLED = 3
"""Layers in which a schedule is looked at: one, what reaches over from the one before, and into the next (NanoFlow,
OSDI'25, §4.1.3)."""
TOLERANCE_S = 1e-9
_STEPS = 28
"""Halvings of the period: a layer of some milliseconds is known to a tenth of a nanosecond."""


@dataclass(frozen=True, slots=True)
class Gap:
    """``second``, ``lag`` layers later, starts no less than ``delay_s`` after ``first`` starts."""

    first: int
    second: int
    delay_s: float
    lag: int


def shortest_period(num_parts: int, gaps: Sequence[Gap], longest_s: float) -> tuple[float, list[float]] | None:
    """The least period, and starts that go with it. None if even ``longest_s`` is too short.

    The period is the greatest ratio of delays to lags along a cycle; found by bisection, where each period is tried by
    longest paths (Bellman, Ford).
    """
    found = _starts(num_parts, gaps, longest_s)
    if found is None:
        return None
    low, high = 0.0, longest_s
    for _ in range(_STEPS):
        middle = (low + high) / 2
        starts = _starts(num_parts, gaps, middle)
        if starts is None:
            low = middle
        else:
            high, found = middle, starts
    return high, found


def _starts(num_parts: int, gaps: Sequence[Gap], period_s: float) -> list[float] | None:
    """Longest paths from a source; None where a cycle grows."""
    starts = [0.0] * num_parts
    arcs = [(gap.first, gap.second, gap.delay_s - gap.lag * period_s) for gap in gaps]
    for _ in range(num_parts + 1):
        is_settled = True
        for first, second, delay_s in arcs:
            if starts[first] + delay_s > starts[second] + 1e-13:
                starts[second] = starts[first] + delay_s
                is_settled = False
        if is_settled:
            first_s = min(starts)
            return [start - first_s for start in starts]
    return None
