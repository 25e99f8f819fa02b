"""How fast something is done, in the time that it takes: bytes of KV that are moved."""

from __future__ import annotations

import math

HORIZON_S = 10.0
"""What was done this long ago, in time that it took, weighs 1/e of what is done now."""


class Throughput:
    """Exponentially weighted in time, as a ratio of two sums, so that short and long moves weigh what they last."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._seconds = 0.0

    @property
    def per_s(self) -> float:
        """0.0 before the first move."""
        return self._amount / self._seconds if self._seconds > 0 else 0.0

    def observe(self, amount: float, duration_s: float) -> None:
        """Count one move."""
        weight = math.exp(-duration_s / HORIZON_S)
        self._amount = self._amount * weight + amount
        self._seconds = self._seconds * weight + duration_s
