"""A call in flight: its requests, one a prompt, and the one way of their news to the HTTP handler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate

from gateway.delta import Delta, End, merged
from gateway.job import Job
from gateway.queue_view import QueueView
from gateway.request import InflightRequest
from shared.payload import Sampling
from shared.requests import QueueLine, QueuePlace
from shared.slo import Slo


class InflightCall:
    """Jobs and their answers so far. Choices are numbered through, those of the first prompt first.

    The dispatcher puts news in and never waits; the handler takes them out at its client's pace. What a slow client
    leaves lying is bounded: a delta holds at least one token or is the last of its choice, a choice takes no more than
    max_tokens tokens, a request fails once, and of its places in the queue only the last one is kept. So one slow
    client delays no other, and costs no more than its own answer.
    """

    def __init__(self, jobs: Sequence[Job], gateway: str, view: QueueView) -> None:
        self._view = view
        self._max_news = sum(_max_news(job.sampling) for job in jobs)
        self._news: list[Delta | End] = []
        self._places: dict[str, QueuePlace] = {}
        self._arrived = asyncio.Event()
        first_choices = accumulate((job.sampling.num_choices for job in jobs), initial=0)
        self.requests = [
            InflightRequest(job, gateway, first_choice, self._tell)
            for job, first_choice in zip(jobs, first_choices, strict=False)
        ]

    @property
    def model(self) -> str:
        """What all its requests ask for."""
        return self.requests[0].job.model

    @property
    def slo(self) -> Slo:
        """What all its requests are promised."""
        return self.requests[0].job.slo

    @property
    def is_complete(self) -> bool:
        """The handler has been given all there is."""
        return all(request.generation.is_over for request in self.requests) and not self._news

    @property
    def has_begun(self) -> bool:
        """There is something of every prompt's answer: none of them waits in the queue for its first run."""
        return all(request.generation.has_begun for request in self.requests)

    @property
    def num_resubmissions(self) -> int:
        """How often one of its requests was put into the queue again."""
        return sum(request.generation.attempt for request in self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(request.job.prompt_token_ids) for request in self.requests)

    def queue_line(self, now: float) -> QueueLine | None:
        """How it stands in the queue for requests like these; None while nothing is known."""
        return self._view.line(self.model, self.slo.kind, now)

    def unserved_since(self, now: float) -> float | None:
        """Since when no node could serve its model; None if one can, or nothing is known."""
        return self._view.unserved_since(self.model, now)

    def revoke(self) -> None:
        """End every answer that is not complete: the client's key is not valid any more."""
        for request in self.requests:
            if not request.generation.is_over:
                request.revoke()

    async def next_deltas(self, timeout_s: float) -> list[Delta] | End | None:
        """All that is new of an answer that has begun, one delta a choice; None if nothing comes within ``timeout_s``.

        A request that fails fails the call.
        """
        news = await self.next_news(timeout_s)
        assert not isinstance(news, QueuePlace), "places end with the first token"
        return news

    async def next_news(self, timeout_s: float) -> list[Delta] | End | QueuePlace | None:
        """As `next_deltas`; before there are any, the place of the request that is predicted to start first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return None
        self._arrived.clear()
        news, self._news = self._news, []
        places, self._places = self._places, {}
        if not news:  # places, then
            return min(places.values(), key=lambda place: place.wait_s)
        end = next((one for one in news if not isinstance(one, Delta)), None)
        return end or merged(one for one in news if isinstance(one, Delta))

    def _tell(self, news: Delta | End | QueuePlace) -> None:
        if isinstance(news, QueuePlace):
            if any(request.generation.has_begun for request in self.requests):
                return  # the client has a token: its waiting is over, though another prompt's may not be
            self._places[news.request_id] = news
        else:
            assert len(self._news) < self._max_news
            self._news.append(news)
        self._arrived.set()


def _max_news(sampling: Sampling) -> int:
    return sampling.num_choices * (sampling.max_tokens + 1) + 1
