"""How fast work arrives, learnt online by model and kind of promise.

What comes later may go ahead of what waits (`newcomers`), and what comes is what batches are made of (`batch_limit`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import NamedTuple, Protocol

import msgspec

from services.queue_manager.learnt.changing_rate import ChangingRate, Estimate
from services.queue_manager.learnt.lifetimes import LEAST_SEEN_S, Gaps, Lifetimes, alive
from shared.config.services.corrections import Correction
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.slo import Slo

MEMORY_S = 60.0  # what came before this counts less than 1/e; after a lull of it a stream begins anew
MAX_FLOWS = 256  # (model, kind of promise) that are remembered; the one heard of longest ago is forgotten first


class Arrived(Protocol):
    """A request that comes; see `services.queue_manager.state.request.Request`."""

    model: str
    slo: Slo
    prompt_tokens: int
    max_tokens: int


class Flow(msgspec.Struct, array_like=True):
    """Requests of one model and one kind of promise: fading sums. After a lull of `MEMORY_S` it begins anew."""

    model: str
    slo_kind: str
    since_s: float
    """When the first came."""
    seen_s: float
    """When the last came, to which the sums are faded."""
    num: float = 0.0
    prompt_tokens: float = 0.0
    square_prompt_tokens: float = 0.0
    limit_tokens: float = 0.0
    patience_s: float = 0.0
    """Sum of the times from arrival until each had to start."""
    gap_s: float = 0.0
    """Sum of the times between those that came."""
    square_gap_s2: float = 0.0
    rate: ChangingRate = msgspec.field(default_factory=ChangingRate)
    end_s: float = 0.0
    """Sum of the times from arrival until each had to end, where that was promised."""
    token_s: float = 0.0
    """Sum of the times that may be between two tokens of each, where that was promised."""

    @property
    def lasted_s(self) -> float:
        """From the first until the last that came."""
        return self.seen_s - self.since_s

    @property
    def dispersion(self) -> float:
        """φ of `changing_rate`: the squared coefficient of variation of the gaps, and 1 at least."""
        num_gaps = self.num - math.exp(-self.lasted_s / MEMORY_S)  # the first had none before it
        return max(1.0, num_gaps * self.square_gap_s2 / self.gap_s**2 - 1) if self.gap_s > 0.0 else 1.0

    def estimate(self, now: float) -> Estimate:
        """Requests a second. One burst is no rate yet: it counts as if it had lasted `LEAST_SEEN_S`."""
        return self.rate.estimate(max(now, self.since_s + LEAST_SEEN_S), self.dispersion)

    def mean_rate(self, now: float) -> Estimate:
        """The same over the last `MEMORY_S`, whatever has changed in it. The first begins the stream."""
        seen_s = max(now - self.since_s, LEAST_SEEN_S)
        num = max(0.0, self.num_at(now) - math.exp((self.since_s - now) / MEMORY_S))
        per_s = num / (MEMORY_S * -math.expm1(-seen_s / MEMORY_S))
        return Estimate(per_s, 1 / math.sqrt(max(1.0, num / self.dispersion)))

    def num_at(self, now: float) -> float:
        """Number of those that came, faded to now."""
        return math.exp((self.seen_s - now) / MEMORY_S) * self.num


class Coming(NamedTuple):
    """What of a flow is still to come."""

    rate_per_s: float
    lasts_s: float
    """The median: see `lifetimes`."""
    error: float
    """Relative standard error of the rate."""
    patience_s: float
    """From its arrival until one has to start."""


class ArrivalRates:
    """Owns `State.flows` and `State.lifetimes`."""

    def __init__(
        self,
        flows: dict[RequestKind, Flow],
        lifetimes: Lifetimes,
        corrections: Container[Correction] = frozenset(Correction),
    ) -> None:
        self._flows = flows
        self._lifetimes = lifetimes
        self._has_change_points = Correction.CHANGE_POINTS in corrections
        self._has_lifetimes = Correction.LIFETIMES in corrections
        self._usual = (-math.inf, 0.0)  # asked once and again at one time

    def observe(self, request: Arrived, now: float) -> None:
        """A first attempt has come. O(1)."""
        kind = RequestKind.of(request)
        flow = self._flows.pop(kind, None)  # and to the end: the first is the one to forget
        if flow is not None and now > flow.seen_s + MEMORY_S:
            self._lifetimes.add(flow.lasted_s, is_over=True)
            self._lifetimes.fade()
            flow = None
        if flow is None:
            flow = Flow(*kind, now, now)
        flow.rate.add(now, flow.dispersion)
        gap_s = now - flow.seen_s
        kept = math.exp(-gap_s / MEMORY_S)
        flow.seen_s = now
        flow.num = kept * flow.num + 1
        flow.prompt_tokens = kept * flow.prompt_tokens + request.prompt_tokens
        flow.square_prompt_tokens = kept * flow.square_prompt_tokens + request.prompt_tokens**2
        flow.limit_tokens = kept * flow.limit_tokens + request.max_tokens
        flow.patience_s = kept * flow.patience_s + request.slo.start_by_s(0.0)
        flow.end_s = kept * flow.end_s + (request.slo.deadline_s or 0.0)
        flow.token_s = kept * flow.token_s + (request.slo.tpot_s or 0.0)
        flow.gap_s = kept * flow.gap_s + gap_s
        flow.square_gap_s2 = kept * flow.square_gap_s2 + gap_s**2
        self._flows[kind] = flow
        if len(self._flows) > MAX_FLOWS:
            del self._flows[next(iter(self._flows))]

    def of_model(self, model: str) -> Iterator[Flow]:
        """What comes for a model."""
        return (flow for flow in self._flows.values() if flow.model == model)

    def coming(self, flow: Flow, now: float) -> Coming:
        """What can be expected of one of them from now on. O(flows)."""
        per_s, error = flow.estimate(now) if self._has_change_points else flow.mean_rate(now)
        lasts_s = max(LEAST_SEEN_S, flow.lasted_s)
        if self._has_lifetimes:
            lasts_s = max(LEAST_SEEN_S, flow.lasted_s + self._usual_s(now))
            per_s *= alive(now - flow.seen_s, Gaps(flow.gap_s, flow.square_gap_s2), lasts_s)
        return Coming(per_s, lasts_s, error, flow.patience_s / flow.num)

    def _usual_s(self, now: float) -> float:
        """For how long flows come, of those that have ended and those that have not."""
        if now != self._usual[0]:
            known = Lifetimes(self._lifetimes.num_ended, self._lifetimes.lasted_s)
            for flow in self._flows.values():
                known.add(flow.lasted_s, is_over=now > flow.seen_s + MEMORY_S)
            self._usual = (now, known.mean_s)
        return self._usual[1]
