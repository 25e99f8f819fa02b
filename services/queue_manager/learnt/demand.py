"""How many requests come: counted by model and kind of promise, to decide on the number of nodes.

`arrivals` looks alike and measures another thing: the mean rate of accepted requests, for predictions. Here all
count that ask, since a refused request is a reason for a node too, and the rate is one that is seldom exceeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from shared.messages.nodes.placement import Arrivals, GroupLoad
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo

BUCKET_S = 5.0
SPANS = ((5.0, -1.0), (15.0, 0.0), (60.0, 1.0))
"""Seconds that a rate is counted over, and by how many deviations of a Poisson count it is put above its mean: what has
just begun counts as far as chance does not explain it, what goes on as far as chance would seldom exceed it."""
MEMORY_S = max(span_s for span_s, _ in SPANS)


class Bucket(msgspec.Struct, array_like=True):
    """What came in one stretch of `BUCKET_S`."""

    number: int
    """Stretches since the beginning of time."""
    num_requests: int = 0
    prompt_tokens: int = 0
    square_prompt_tokens: int = 0
    max_tokens: int = 0


class Asked(msgspec.Struct):
    """Requests of one model and kind of promise."""

    model: str
    slo: Slo
    """Of the last of them: promises of one kind are alike."""
    buckets: list[Bucket] = []
    """Those in which any came, oldest first."""
    came_s: float = 0.0
    """When the last of them did."""


class Demand:
    """Owns `State.asked`: kinds are as few as models times classes, and of each a minute is kept."""

    def __init__(self, asked: dict[RequestKind, Asked], newcomer: Callable[[Submit, float], GroupLoad]) -> None:
        self._asked = asked
        self._newcomer = newcomer

    def count(self, message: Submit, now: float) -> None:
        """A request comes, for the first time."""
        asked = self._asked.setdefault(RequestKind.of(message), Asked(message.model, message.slo))
        asked.slo, asked.came_s = message.slo, now
        number = int(now // BUCKET_S)
        if not asked.buckets or asked.buckets[-1].number != number:
            asked.buckets.append(Bucket(number))
        bucket = asked.buckets[-1]
        bucket.num_requests += 1
        bucket.prompt_tokens += message.prompt_tokens
        bucket.square_prompt_tokens += message.prompt_tokens**2
        bucket.max_tokens += message.max_tokens

    def forget(self, now: float) -> None:
        """What came before the longest span is over."""
        first = (now - MEMORY_S) // BUCKET_S
        for key in [key for key, asked in self._asked.items() if asked.buckets[0].number < first]:
            asked = self._asked[key]
            asked.buckets = [bucket for bucket in asked.buckets if bucket.number >= first]
            if not asked.buckets:
                del self._asked[key]

    @property
    def came_s(self) -> float:
        """When a request came last; 0.0 where none has of late."""
        return max((asked.came_s for asked in self._asked.values()), default=0.0)

    def expected(self, now: float) -> list[Arrivals]:
        """Of each kind that has come of late, its rate and a typical request."""
        return [Arrivals(self._typical(asked, now), _rate_per_s(asked, now)) for asked in self._asked.values()]

    def _typical(self, asked: Asked, now: float) -> GroupLoad:
        num = sum(bucket.num_requests for bucket in asked.buckets)
        mean = sum(bucket.prompt_tokens for bucket in asked.buckets) / num
        square = sum(bucket.square_prompt_tokens for bucket in asked.buckets) / num
        slo = asked.slo
        request = Submit(
            request_id="",
            gateway="",
            model=asked.model,
            slo=slo,
            prompt_tokens=round(mean),
            max_tokens=round(sum(bucket.max_tokens for bucket in asked.buckets) / num),
        )
        return msgspec.structs.replace(
            self._newcomer(request, now),
            slo=slo.kind,
            std_prompt_tokens=math.sqrt(max(0.0, square - mean * mean)),
            end_by_s=0.0 if slo.deadline_s is None else now + slo.deadline_s,
        )


def _rate_per_s(asked: Asked, now: float) -> float:
    """The highest over the spans."""
    rates = []
    for span_s, num_deviations in SPANS:
        first = (now - span_s) // BUCKET_S
        num = sum(bucket.num_requests for bucket in asked.buckets if bucket.number >= first)
        rates.append((num + num_deviations * math.sqrt(num)) / (now - first * BUCKET_S))
    return max(rates)
