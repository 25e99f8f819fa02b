"""What learnt speeds are kept by: weights, and what they are on."""

from __future__ import annotations

from typing import NamedTuple


class WeightsAt(NamedTuple):
    """A key."""

    weights: str
    place: str
    """A node, or a kind of device."""
