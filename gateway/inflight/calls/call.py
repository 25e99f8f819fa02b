"""A call in flight: its requests, one a prompt, and the one way of their news to the HTTP handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate

from gateway.inflight.calls.bell import Bell
from gateway.inflight.calls.job import Job
from gateway.inflight.calls.request import InflightRequest
from gateway.inflight.calls.rounds import Rounds
from gateway.inflight.queue_view import QueueView
from gateway.openai.answers.delta import Delta, End, merged
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import QueueLine, QueuePlace
from shared.messages.requests.slo import Slo

Take = Callable[[list[Delta] | End, float], bool]
"""Is given all that is new of a call and the loop's time, and answers whether it wants more now."""


class InflightCall:
    """Jobs and their answers so far. Choices are numbered through, those of the first prompt first.

    The dispatcher puts news in and never waits; the handler takes them out at its client's pace. What a slow client
    leaves lying is bounded: a delta holds at least one token or is the last of its choice, a choice takes no more than
    max_tokens tokens, a request fails once, and of its places in the queue only the last one is kept. So one slow
    client delays no other, and costs no more than its own answer.
    """

    def __init__(self, jobs: Sequence[Job], gateway: str, view: QueueView, rounds: Rounds) -> None:
        self._view = view
        self._rounds = rounds
        self._max_news = sum(_max_news(job.sampling) for job in jobs)
        self._news: list[Delta | End] = []
        self._places: dict[str, QueuePlace] = {}
        self._bell = Bell()
        self._take: Take | None = None
        self._timeout_s = 0.0
        self._is_due = False
        self._is_over = False
        self._num_over = 0  # requests at the beginning that are; those behind the next have not been looked at
        self.num_passed = 0
        """How often there was something to `pass_on`."""
        self._is_collected = False
        self._error: Exception | None = None
        first_choices = accumulate((job.sampling.num_choices for job in jobs), initial=0)
        self.requests = [
            InflightRequest(job, gateway, first_choice, self._tell)
            for job, first_choice in zip(jobs, first_choices, strict=False)
        ]

    @property
    def model(self) -> str:
        """What all its requests ask for, as the queue knows it."""
        return self.requests[0].job.model

    @property
    def served_name(self) -> str:
        """The same, as its client said it."""
        return self.requests[0].job.served_name

    @property
    def slo(self) -> Slo:
        """What all its requests are promised."""
        return self.requests[0].job.slo

    @property
    def is_complete(self) -> bool:
        """The handler has been given all there is."""
        return not self._news and self._is_over

    @property
    def num_untold(self) -> int:
        """News that the handler has not been given."""
        return len(self._news)

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
        return sum(request.job.num_prompt_tokens for request in self.requests)

    @property
    def num_cached_tokens(self) -> int | None:
        """Of all prompts, those that lay in a cache; None while that is not known of each."""
        total = 0
        for request in self.requests:
            if request.generation.num_cached_tokens is None:
                return None
            total += request.generation.num_cached_tokens
        return total

    @property
    def tells_thoughts(self) -> bool:
        """Thoughts are told apart from the answer, so that their tokens are counted."""
        return self.requests[0].job.thoughts is not None

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

    async def next_news(self, timeout_s: float) -> list[Delta] | End | QueuePlace | None:
        """All that is new, one delta a choice; before there are any, the place of the request that is predicted to
        start first; None if nothing comes within ``timeout_s``.

        A request that fails fails the call.
        """
        if not await self._bell.wait(timeout_s):
            return None
        places, self._places = self._places, {}
        if not self._news:  # places, then
            return min(places.values(), key=lambda place: place.wait_s)
        return self.all_news()

    async def pass_on(self, take: Take, timeout_s: float) -> bool:
        """Give all that is new of an answer that has begun to ``take``, as it comes.

        Until ``take`` answers that it wants no more now, or all there is has been given; whatever it raises is raised
        here. False if nothing comes within ``timeout_s``. The task that waits here is not woken for every token: that
        would cost as much as a token's way through all the rest of the gateway.
        """
        self._take = take
        self._timeout_s = timeout_s
        try:
            if self._news:
                self._pass(asyncio.get_running_loop().time())
            is_in_time = await self._bell.wait(timeout_s)
        finally:
            self._take = None
        if self._error is not None:
            raise self._error
        return is_in_time

    async def until_whole(self, timeout_s: float) -> bool:
        """Wait until all there will be has come, or why there is no more; False if it has not within ``timeout_s``.

        The task that waits here is woken once, whatever the answer's length. `all_news` gives the answer.
        """
        self._is_collected = True
        try:
            return self._is_over or await self._bell.wait(timeout_s)
        finally:
            self._is_collected = False

    def _pass(self, now: float) -> None:
        """In the round of the loop that follows the arrival: what came together is given together."""
        self._is_due = False
        if self._take is None or not self._news:  # the waiter has enough, is gone, or has them already
            return
        self.num_passed += 1
        self._bell.put_off(now + self._timeout_s)
        try:
            wants_more = self._take(self.all_news(), now)
        except Exception as error:
            self._error, wants_more = error, False
        if not wants_more or self.is_complete:
            self._take = None
            self._bell.ring()

    def all_news(self) -> list[Delta] | End:
        """All that is new, one delta a choice, or why there is no answer."""
        news, self._news = self._news, []
        if len(news) == 1 and isinstance(one := news[0], Delta):  # a token, mostly
            return [one]
        deltas: list[Delta] = []
        for one in news:
            if not isinstance(one, Delta):
                return one
            deltas.append(one)
        return merged(deltas)

    def close(self) -> None:
        """No more news is asked for."""
        self._bell.close()

    def _tell(self, news: Delta | End | QueuePlace) -> None:
        if isinstance(news, QueuePlace):
            if any(request.generation.has_begun for request in self.requests):
                return  # the client has a token: its waiting is over, though another prompt's may not be
            self._places[news.request_id] = news
            self._bell.ring()
            return
        assert len(self._news) < self._max_news
        self._news.append(news)
        if not isinstance(news, Delta) or news.finish_reason is not None:
            self._is_over = self._are_over()
        if self._take is not None:
            if self._is_over or not self._is_due:
                self._is_due = True
                self._rounds.add(self._pass, may_wait=not self._is_over)
        elif not self._is_collected or self._is_over or not isinstance(news, Delta):
            self._bell.ring()

    def _are_over(self) -> bool:
        """Whether all requests are; each is looked at once more than it ends, however many there are."""
        while self._num_over < len(self.requests) and self.requests[self._num_over].generation.is_over:
            self._num_over += 1
        return self._num_over == len(self.requests)


def _max_news(sampling: Sampling) -> int:
    return sampling.num_choices * (sampling.max_tokens + 1) + 1
