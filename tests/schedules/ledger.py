"""What clients have been told, to be compared with what they should have been."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.inflight.calls.request import InflightRequest
from gateway.openai.answers.delta import Delta, End, Failure
from shared.messages.requests.requests import QueuePlace
from tests.schedules.orders import Order


class BrokenPromiseError(AssertionError):
    """The cluster has broken a promise."""


class Ledger:
    """Of each request: how it ended. Each ends once."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self.ends: dict[str, str] = {}
        """By request: answered, refused, left, gone, or how it failed."""
        self.expiring: set[str] = set()
        """Requests whose payload only its expiry deletes: their gateway died with a submit that may come late."""
        self.num_tokens = 0
        """Of complete answers, each compared with the one right token for its place."""

    def _end(self, request_id: str, how: str) -> None:
        if request_id in self.ends:
            raise BrokenPromiseError(f"{request_id} ends twice: {self.ends[request_id]}, then {how}")
        self.ends[request_id] = how

    @property
    def unended(self) -> list[str]:
        """Requests whose clients wait."""
        return [name for name in self.orders if name not in self.ends]

    def note_asked(self, order: Order) -> None:
        """A client has asked."""
        self.orders[order.request_id] = order

    def note_refused(self, order: Order) -> None:
        """It was told at once that the queue is away."""
        self._end(order.request_id, "refused")

    def note_left(self, request_id: str) -> None:
        """It has gone."""
        self._end(request_id, "left")

    def note_gone(self, request_ids: Iterable[str]) -> None:
        """Its gateway has died."""
        for request_id in request_ids:
            if request_id not in self.ends:
                self._end(request_id, "gone")

    def note_news(self, order: Order, news: Delta | End | QueuePlace) -> None:
        """Something has come for it: no token after the end."""
        if order.request_id in self.ends:
            raise BrokenPromiseError(f"{order.request_id} has ended ({self.ends[order.request_id]}) and hears {news}")
        if isinstance(news, Failure):
            self._end(order.request_id, f"failed: {news.value}")
        elif not isinstance(news, Delta | QueuePlace):
            self._end(order.request_id, f"failed: {news}")

    def note_over(self, request: InflightRequest) -> None:
        """Its answer is over."""
        request_id = request.job.request_id
        if request_id in self.ends:
            return  # told when it failed
        order = self.orders[request_id]
        for choice, output in enumerate(request.generation.outputs):
            found = (output.token_ids, output.finish_reason)
            if found != order.answer(choice):
                raise BrokenPromiseError(f"{request_id}: choice {choice} is {found}, not {order.answer(choice)}")
            self.num_tokens += len(output.token_ids)
        self._end(request_id, "answered")
