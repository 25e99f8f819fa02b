"""What waits were against what was predicted: the forecast's bias and its spread, learnt online.

A forecast says N(mean, std); in logarithms, so that errors multiply, what it was is written as::

    u = ln((actual + ε) / (mean + ε)) / s,      s = std / (mean + ε),

which is standard normal if the forecast is right. Of each kind of prediction (model, kind of promise, octaves of the
mean) there is a histogram of u that fades with new ones; it begins with the normal distribution at the weight of
`PRIOR_WEIGHT` observations, so where few were seen the forecast's own spread holds. The median of u moves the mean. The
bound that is told with 90 % is its quantile at a level that is moved by misses: adaptive conformal inference (Gibbs and
Candès, NeurIPS 2021, eq. 2), ``α' = α + γ (0.1 - missed)``. So 90 % hold in the long run, whatever the distribution.

The uncorrected forecast is what is compared, else the correction would learn from itself. A bound that is over counts
at once, not when the wait is: while a queue grows, the short waits are known first.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

from shared.wait import NEVER, Wait

UPPER = 0.9  # of the predictions that clients are told beside the mean
GAMMA = 0.02  # step of the level; the paper's choice is 0.005 for thousands of predictions a series
LEAST_MISS, MOST_MISS = 0.005, 0.5  # bounds of the level's miss rate
SOON_S = 0.1  # ε: shorter times are all alike
LEAST_SPREAD, MOST_SPREAD = 0.02, 1.0  # of s
MEMORY = 128.0  # observations; older ones count less than 1/e
PRIOR_WEIGHT = 12.0
BIN = 0.25  # width of a bin of u
MOST_BINS = 40  # to either side: what is further out counts as there
OCTAVES = 2  # of predicted means that share a histogram
MAX_TOLD = 1024  # predictions that are watched at a time
MAX_RESIDUALS = 512  # histograms that are remembered; the one that was heard of longest ago is forgotten first


class Residual(msgspec.Struct, array_like=True):
    """Histogram of u for one kind of prediction."""

    bins: dict[int, float]
    """Weights, by round(u / BIN)."""
    miss: float = 1 - UPPER
    """α: the bound is the quantile at 1 - α."""

    @classmethod
    def prior(cls) -> Residual:
        """Standard normal."""
        edges = [NormalDist().cdf((number + 0.5) * BIN) for number in range(-12, 12)]
        return cls({number: PRIOR_WEIGHT * (edges[number + 12] - edges[number + 11]) for number in range(-11, 12)})

    def judge(self, *, missed: bool) -> None:
        """One more bound was kept, or not."""
        self.miss = max(LEAST_MISS, min(MOST_MISS, self.miss + GAMMA * (1 - UPPER - missed)))

    def observe(self, u: float) -> None:
        """One more prediction, and what came."""
        number = max(-MOST_BINS, min(MOST_BINS, round(u / BIN)))
        kept = 1 - 1 / MEMORY
        self.bins = {place: kept * weight for place, weight in self.bins.items() if weight > 1e-6}
        self.bins[number] = self.bins.get(number, 0.0) + 1

    def quantile(self, share: float) -> float:
        """Of u; straight inside of a bin."""
        left = share * math.fsum(self.bins.values())
        numbers = sorted(self.bins)
        for number in numbers:
            weight = self.bins[number]
            if left <= weight:
                return (number - 0.5 + left / weight) * BIN
            left -= weight
        return (numbers[-1] + 0.5) * BIN


class Told(msgspec.Struct, array_like=True):
    """A prediction of which it is not known yet how good it was."""

    key: str
    told_s: float
    mean_s: float
    std_s: float
    bound_s: float
    is_missed: bool = False
    """The bound is over, and was counted."""


class Residuals:
    """Owns `State.residuals` and `State.told`."""

    def __init__(self, residuals: dict[str, Residual], told: dict[str, Told]) -> None:
        self._residuals = residuals
        self._told = told

    def corrected(self, model: str, slo_kind: str, wait: Wait) -> Wait:
        """The wait as it can be expected by what was seen; its 90 % quantile is the bound."""
        residual = self._residuals.get(_key(model, slo_kind, wait)) if wait != NEVER else None
        if residual is None:
            return wait
        scale_s, spread = _scale(wait)
        mean_s = scale_s * math.exp(residual.quantile(0.5) * spread) - SOON_S
        bound_s = scale_s * math.exp(residual.quantile(1 - residual.miss) * spread) - SOON_S
        return Wait(max(0.0, mean_s), max(0.0, bound_s - mean_s) / NormalDist().inv_cdf(UPPER))

    def tell(self, request_id: str, model: str, slo_kind: str, wait: Wait, now: float) -> None:
        """So long a request that waits is predicted to wait for its place."""
        if request_id not in self._told and len(self._told) < MAX_TOLD and wait.mean_s > 0 and wait != NEVER:
            bound_s = self.corrected(model, slo_kind, wait).quantile(UPPER)
            self._told[request_id] = Told(_key(model, slo_kind, wait), now, wait.mean_s, wait.std_s, bound_s)

    def started(self, request_id: str, now: float) -> None:
        """The request has its place."""
        told = self._told.pop(request_id, None)
        if told is not None:
            wait_s = now - told.told_s
            if not told.is_missed:
                self._judge(told, missed=wait_s > told.bound_s)
            scale_s, spread = _scale(Wait(told.mean_s, told.std_s))
            self._residuals[told.key].observe(math.log((wait_s + SOON_S) / scale_s) / spread)

    def look(self, now: float) -> None:
        """Whoever should have its place by now, and has not."""
        for told in self._told.values():
            if not told.is_missed and now - told.told_s > told.bound_s:
                told.is_missed = True
                self._judge(told, missed=True)

    def forget(self, request_id: str) -> None:
        """It does not wait any more, and has no place."""
        self._told.pop(request_id, None)

    def _judge(self, told: Told, *, missed: bool) -> None:
        residual = self._residuals.pop(told.key, None) or Residual.prior()
        residual.judge(missed=missed)
        self._residuals[told.key] = residual  # at the end: the first is the one to forget
        if len(self._residuals) > MAX_RESIDUALS:
            del self._residuals[next(iter(self._residuals))]


def _key(model: str, slo_kind: str, wait: Wait) -> str:
    return f"{model} {slo_kind} {int(math.log2(1 + wait.mean_s)) // OCTAVES}"


def _scale(wait: Wait) -> tuple[float, float]:
    scale_s = wait.mean_s + SOON_S
    return scale_s, max(LEAST_SPREAD, min(MOST_SPREAD, wait.std_s / scale_s))
