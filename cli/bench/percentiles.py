"""Percentiles of a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

PERCENTS = (50, 90, 95, 99)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of an ascending sequence lies, straight between neighbours."""
    assert ordered
    assert 0 <= percent <= 100
    place = (len(ordered) - 1) * percent / 100
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summary(values: Iterable[float]) -> dict[str, float] | None:
    """Mean and the usual percentiles; None when there is no value."""
    ordered = sorted(values)
    if not ordered:
        return None
    return {
        "mean": sum(ordered) / len(ordered),
        **{f"p{percent}": percentile(ordered, percent) for percent in PERCENTS},
    }
