"""When requests come."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from services.simulator.workloads.request import WorkloadError


def poisson(rate_per_s: float, num_requests: int, random: Random) -> list[float]:
    """Times of independent arrivals, from 0 on; the times between them are exponential."""
    now = 0.0
    times = []
    for _ in range(num_requests):
        now += random.expovariate(rate_per_s)
        times.append(now)
    return times


class WeightedNames:
    """Names that are drawn in proportion to their weights."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        if not weights or any(weight < 0 for weight in weights.values()) or not sum(weights.values()):
            raise WorkloadError("a mix needs weights of at least 0, and one above 0")
        self.weights = dict(weights)
        self._names = list(weights)
        self._numbers = list(weights.values())

    def draw(self, random: Random) -> str:
        """One of the names."""
        return random.choices(self._names, self._numbers)[0]
