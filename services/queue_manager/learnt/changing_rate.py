"""How fast requests come, where that changes at times that are not told.

Between changes requests come as a Poisson process of some rate λ; from one change to the next it takes `CHANGE_S` on
average, exponentially. A stretch of s seconds in which n came has the likelihood λ^n exp(-λ s). So what is known of λ
is a gamma distribution, of shape a and rate b before the stretch, of a + n and b + s behind it; and the stretch is
evidence, to one that knew that, of ::

    Γ(a + n) / Γ(a) · b^a / (b + s)^(a + n)

There is one belief for each time at which the rate may have changed last. Before a stretch it has changed with
probability 1 - exp(-s / CHANGE_S), which makes another belief that knows next to nothing; then all are weighed by the
evidence (R. P. Adams and D. J. C. MacKay, Bayesian Online Changepoint Detection, arXiv:0710.3742, 2007, algorithm 1).
So a rate that stays is a mean over as long as it has, and one that has changed is forgotten as soon as that shows.

A stretch ends with the request that comes `STRETCH_S` or more behind its begin: where one stops to count does not
change the likelihood. Requests that come in bunches tell less than as many that come by themselves: n and s are both
divided by their index of dispersion φ, so that variances are φ times as large (quasi-likelihood: R. W. M. Wedderburn,
Biometrika 61, 1974). Of independent gaps that is the squared coefficient of variation (D. R. Cox, Renewal Theory, 1962,
ch. 4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

CHANGE_S = 600.0  # between two changes of a rate, on average
STRETCH_S = 2.5  # requests are weighed together that come within this
MAX_BELIEFS = 8  # the least probable goes
LEAST_PROBABILITY = 1e-9  # so that evidence to come can still speak for it
PRIOR_NUM, PRIOR_S = 0.5, 0.5  # of a rate of which next to nothing is known: half a request in half a second


class Estimate(NamedTuple):
    """Of a rate at a time."""

    per_s: float
    error: float
    """Relative standard deviation."""


class Belief(msgspec.Struct, array_like=True, frozen=True):
    """The rate has been the same since some time: it is gamma distributed."""

    probability: float
    num: float
    """Shape: requests since then."""
    seconds: float
    """Rate: how long that is."""

    def log_evidence(self, num: float, seconds: float) -> float:
        """Of so many in a stretch."""
        shape = self.num + num
        prior = self.num * math.log(self.seconds) - math.lgamma(self.num)
        return math.lgamma(shape) - shape * math.log(self.seconds + seconds) + prior


class ChangingRate(msgspec.Struct, array_like=True):
    """Of one stream. Its first request begins it, and is not counted."""

    begun_s: float | None = None
    """When the stretch did that has not ended; None before the first request."""
    num: int = 0
    """That came in it."""
    beliefs: list[Belief] = msgspec.field(default_factory=lambda: [Belief(1.0, PRIOR_NUM, PRIOR_S)])

    def add(self, now: float, dispersion: float) -> None:
        """Another one comes. O(MAX_BELIEFS) once in a stretch."""
        if self.begun_s is None:
            self.begun_s = now
            return
        self.num += 1
        if now - self.begun_s >= STRETCH_S:
            self._learn(now - self.begun_s, dispersion)
            self.begun_s, self.num = now, 0

    def estimate(self, now: float, dispersion: float) -> Estimate:
        """At a time, with what came since the last stretch, or did not. O(MAX_BELIEFS).

        The mean is that of requests that have come: one alone is no stream yet.
        """
        since_s = 0.0 if self.begun_s is None else max(0.0, now - self.begun_s)
        num, seconds = self.num / dispersion, since_s / dispersion
        total = came = mean = square = 0.0
        for one in self.beliefs:
            shape, rate = one.num + num, one.seconds + seconds
            total += one.probability
            came += one.probability * (shape - PRIOR_NUM) / rate
            mean += one.probability * shape / rate
            square += one.probability * shape * (shape + 1) / (rate * rate)
        return Estimate(came / total, math.sqrt(max(0.0, square * total / (mean * mean) - 1)))

    def _learn(self, stretch_s: float, dispersion: float) -> None:
        num, seconds = self.num / dispersion, stretch_s / dispersion
        log_stays = -stretch_s / CHANGE_S
        beliefs = [*self.beliefs, Belief(1.0, PRIOR_NUM, PRIOR_S)]
        logs = [log_stays + math.log(one.probability) + one.log_evidence(num, seconds) for one in self.beliefs]
        logs.append(math.log(-math.expm1(log_stays)) + beliefs[-1].log_evidence(num, seconds))
        most = max(logs)
        weights = [max(LEAST_PROBABILITY, math.exp(log - most)) for log in logs]
        if len(beliefs) > MAX_BELIEFS:
            least = min(range(len(beliefs)), key=weights.__getitem__)
            del beliefs[least], weights[least]
        total = math.fsum(weights)
        self.beliefs = [
            Belief(weight / total, one.num + num, one.seconds + seconds)
            for one, weight in zip(beliefs, weights, strict=True)
        ]
