"""Requests that are not here yet, as groups: a plan, or a number of nodes, has to suit those who come as well."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from msgspec.structs import replace

from shared.messages.nodes.placement import Arrivals, GroupLoad

NUM_SLICES = 6  # groups of one kind that are expected


def expected(kind: Arrivals, horizon_s: float, num_slices: int = NUM_SLICES) -> Iterator[GroupLoad]:
    """Groups of those who come until then. They are due as who comes in the middle of them."""
    horizon_s = min(horizon_s, kind.lasts_s)
    num_requests = ceil(kind.rate_per_s * horizon_s)
    num_slices = min(num_slices, num_requests)
    for number in range(num_slices):
        later_s = (number + 0.5) / num_slices * horizon_s
        yield replace(
            kind.load,
            group=f"{kind.load.model} {kind.load.slo} {number}",
            rank=inf,  # behind those who are here
            num_waiting=num_requests * (number + 1) // num_slices - num_requests * number // num_slices,
            deadline_s=kind.load.deadline_s + later_s,
            end_by_s=kind.load.end_by_s + later_s if kind.load.end_by_s else 0.0,
        )
