"""How fast work arrives, learnt online by model and kind of promise.

Who comes later may go ahead of who waits (`newcomers`), and what comes is what batches are made of (`headroom`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import msgspec

from shared.slo import Slo

MEMORY_S = 60.0  # arrivals older than this count less than 1/e
LEAST_SEEN_S = 10.0  # a stream counts as seen for so long at least: one burst is no rate yet
MAX_FLOWS = 256  # (model, kind of promise) that are remembered; the one heard of longest ago is forgotten first


class Arrived(Protocol):
    """A request that comes; see `services.queue_manager.state.Request`."""

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

    def rate_per_s(self, now: float) -> float:
        """Requests a second, over the memory: Σ exp(-age / M) / ∫ exp(-age / M) behind the first, which began it."""
        seen_s = now - self.since_s
        num = self.num_at(now) - math.exp(-seen_s / MEMORY_S)
        return max(0.0, num) / (MEMORY_S * -math.expm1(-max(LEAST_SEEN_S, seen_s) / MEMORY_S))

    def num_at(self, now: float) -> float:
        """Number of those that came, faded to now."""
        return math.exp((self.seen_s - now) / MEMORY_S) * self.num

    def lasts_s(self, now: float) -> float:
        """For how long it will go on: as long as it has, for all that is known (J. R. Gott, Nature 363, 1993)."""
        return max(LEAST_SEEN_S, now - self.since_s)


class Arrivals:
    """Owns `State.flows`."""

    def __init__(self, flows: dict[str, Flow]) -> None:
        self._flows = flows

    def observe(self, request: Arrived, now: float) -> None:
        """A first attempt has come. O(1)."""
        model, slo_kind = request.model, request.slo.kind
        key = f"{model} {slo_kind}"
        flow = self._flows.pop(key, None)  # and to the end: the first is the one to forget
        if flow is None or now > flow.seen_s + MEMORY_S:
            flow = Flow(model, slo_kind, now, now)
        kept = math.exp((flow.seen_s - now) / MEMORY_S)
        flow.seen_s = now
        flow.num = kept * flow.num + 1
        flow.prompt_tokens = kept * flow.prompt_tokens + request.prompt_tokens
        flow.square_prompt_tokens = kept * flow.square_prompt_tokens + request.prompt_tokens**2
        flow.limit_tokens = kept * flow.limit_tokens + request.max_tokens
        flow.patience_s = kept * flow.patience_s + request.slo.start_by_s(0.0)
        self._flows[key] = flow
        if len(self._flows) > MAX_FLOWS:
            del self._flows[next(iter(self._flows))]

    def of_model(self, model: str) -> Iterator[Flow]:
        """What comes for a model."""
        return (flow for flow in self._flows.values() if flow.model == model)
