"""Output tokens per second of step time."""

from __future__ import annotations

import math

HORIZON_S = 10.0
"""A step this long ago weighs 1/e of the present one."""


class Throughput:
    """Exponentially weighted in time, as a ratio of two sums, so that short and long steps weigh what they last."""

    def __init__(self) -> None:
        self._num_tokens = 0.0
        self._seconds = 0.0

    @property
    def tokens_per_s(self) -> float:
        """0.0 before the first step."""
        return self._num_tokens / self._seconds if self._seconds > 0 else 0.0

    def observe(self, num_tokens: int, duration_s: float) -> None:
        """Count one step."""
        weight = math.exp(-duration_s / HORIZON_S)
        self._num_tokens = self._num_tokens * weight + num_tokens
        self._seconds = self._seconds * weight + duration_s
