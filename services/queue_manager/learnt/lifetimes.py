"""Whether a stream of requests still comes, and for how long it will.

Streams begin and end. One that has lasted for a, where streams last β on average, is taken to end at a constant rate of
which no more is known than that: gamma distributed with shape 1 and rate β, and a + β once it has lasted so long. So it
goes on for another x with probability ::

    P(X > x) = (a + β) / (a + β + x)                                (K. S. Lomax, JASA 49, 1954), of median a + β

which is as long as it has where nothing is known of streams (β = 0: J. R. Gott, Nature 363, 1993). β is all the time
for which streams have come, itself among them, over the number of those that have ended, and one.

One that has been silent for s may have ended. Gaps between those that came leave 1 / λ = E[G²] / 2 E[G] to wait at any
time (Cox, Renewal Theory, 1962, ch. 5), which tells even streams from those that come in bunches. With the
rate of ending μ = 1 / (a + β), it still comes with probability ::

    P(alive) = 1 / (1 + μ / (λ + μ) (exp((λ + μ) s) - 1))

(D. C. Schmittlein, D. G. Morrison and R. Colombo, Counting Your Customers, Management Science 33, 1987).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

LEAST_SEEN_S = 10.0  # what has lasted for less is no stream yet, and counts as long as this
LEAST_GAP_S = 2.0  # a gap that every stream is taken to have had: few tell little
MAX_ENDED = 64  # streams that count as much as all before them
NEVER_S = 100.0  # λ s from which on none comes any more, whatever μ is


class Lifetimes(msgspec.Struct, array_like=True):
    """What is known of streams that came."""

    num_ended: float = 0.0
    lasted_s: float = 0.0
    """All of them together."""

    def add(self, lasted_s: float, *, is_over: bool) -> None:
        """Another one, that has ended or not; bursts are no streams."""
        if lasted_s >= LEAST_SEEN_S:
            self.num_ended += is_over
            self.lasted_s += lasted_s

    def fade(self) -> None:
        """What ended long ago counts less."""
        if self.num_ended > MAX_ENDED:
            self.num_ended, self.lasted_s = self.num_ended / 2, self.lasted_s / 2

    @property
    def mean_s(self) -> float:
        """β."""
        return self.lasted_s / (self.num_ended + 1)


class Gaps(NamedTuple):
    """Between requests that came: sums, with any weights."""

    seconds: float
    square_s2: float

    @property
    def left_s(self) -> float:
        """1 / λ: from any time until the next comes, on average."""
        return (self.square_s2 + 2 * LEAST_GAP_S**2) / (2 * (self.seconds + LEAST_GAP_S))


def alive(silent_s: float, gaps: Gaps, lasts_s: float) -> float:
    """Probability that a stream still comes of which none has come for so long; it lasts ``lasts_s`` about."""
    end_per_s = 1 / lasts_s
    any_per_s = 1 / gaps.left_s + end_per_s
    if any_per_s * silent_s > NEVER_S:
        return 0.0
    return 1 / (1 + end_per_s / any_per_s * math.expm1(any_per_s * silent_s))
