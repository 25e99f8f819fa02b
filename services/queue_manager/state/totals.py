"""Sums over the waiting or the running members of a group, so that none has to be walked over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec


class Counted(Protocol):
    """What is summed of a request; see `services.queue_manager.state.request.Request`."""

    prompt_tokens: int
    max_tokens: int
    done_tokens: int
    kv_tokens: int
    warm_tokens: int
    begins_s: float


class Totals(msgspec.Struct, gc=False):
    """Each event changes the sums in O(1). A member's fields change only while it is outside."""

    prompt_tokens: int = 0
    square_prompt_tokens: int = 0
    """Sum of the squares of the prompts' tokens."""
    max_tokens: int = 0
    done_tokens: int = 0
    kv_tokens: int = 0
    warm_tokens: int = 0
    begins_ms: int = msgspec.field(default=0, name="pulled_ms")  # as in snapshots of earlier versions
    """When they began, `Request.begins_s`: whole milliseconds, as in an entry's id, so that the sum stays exact."""
    num_by_limit: dict[int, int] = {}
    """Members by the magnitude of their limit (`int.bit_length` of ``max_tokens``): few, whatever clients ask for."""
    tokens_by_limit: dict[int, int] = {}
    """Sum of their limits, by the same."""

    def add(self, request: Counted) -> None:
        """A member has come."""
        self._count(request, 1)

    def remove(self, request: Counted) -> None:
        """A member has gone."""
        self._count(request, -1)

    def limits(self) -> Iterator[tuple[int, float]]:
        """Magnitude by magnitude: number of members, and the mean of their limits."""
        for magnitude, number in self.num_by_limit.items():
            yield number, self.tokens_by_limit[magnitude] / number

    @classmethod
    def of(cls, requests: Iterable[Counted]) -> Totals:
        """The sums over these, by a walk: what `add` and `remove` must have come to."""
        totals = cls()
        for request in requests:
            totals.add(request)
        return totals

    def _count(self, request: Counted, sign: int) -> None:
        self.prompt_tokens += sign * request.prompt_tokens
        self.square_prompt_tokens += sign * request.prompt_tokens**2
        self.max_tokens += sign * request.max_tokens
        self.done_tokens += sign * request.done_tokens
        self.kv_tokens += sign * request.kv_tokens
        self.warm_tokens += sign * request.warm_tokens
        self.begins_ms += sign * round(request.begins_s * 1000)
        magnitude = request.max_tokens.bit_length()
        number = self.num_by_limit.get(magnitude, 0) + sign
        if number:
            self.num_by_limit[magnitude] = number
            self.tokens_by_limit[magnitude] = self.tokens_by_limit.get(magnitude, 0) + sign * request.max_tokens
        else:
            del self.num_by_limit[magnitude], self.tokens_by_limit[magnitude]
