"""A call in flight: its requests, one a prompt, and the one way of their news to the HTTP handler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate

from gateway.delta import Delta, Failure, Refusal, merged
from gateway.job import Job
from gateway.request import InflightRequest
from shared.payload import Sampling


class InflightCall:
    """Jobs and their answers so far. Choices are numbered through, those of the first prompt first.

    The dispatcher puts news in and never waits; the handler takes them out at its client's pace. What a slow client
    leaves lying is bounded: a delta holds at least one token or is the last of its choice, a choice takes no more than
    max_tokens tokens, and a request fails once. So one slow client delays no other, and costs no more than its own
    answer.
    """

    def __init__(self, jobs: Sequence[Job], gateway: str) -> None:
        self._news: asyncio.Queue[Delta | Failure | Refusal] = asyncio.Queue(
            maxsize=sum(_max_news(job.sampling) for job in jobs)
        )
        first_choices = accumulate((job.sampling.num_choices for job in jobs), initial=0)
        self.requests = [
            InflightRequest(job, gateway, first_choice, self._news.put_nowait)
            for job, first_choice in zip(jobs, first_choices, strict=False)
        ]

    @property
    def is_complete(self) -> bool:
        """The handler has been given all there is."""
        return all(request.generation.is_over for request in self.requests) and self._news.empty()

    @property
    def has_begun(self) -> bool:
        """There is something of every prompt's answer: none of them waits in the queue for its first run."""
        return all(request.generation.has_begun for request in self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(request.job.prompt_token_ids) for request in self.requests)

    async def next_deltas(self, timeout_s: float) -> list[Delta] | Failure | Refusal | None:
        """All that is new, one delta a choice; None if nothing comes within ``timeout_s``.

        A request that fails fails the call.
        """
        try:
            async with asyncio.timeout(timeout_s):
                news = [await self._news.get()]
        except TimeoutError:
            return None
        while not self._news.empty():
            news.append(self._news.get_nowait())
        failure = next((one for one in news if isinstance(one, Failure | Refusal)), None)
        return failure or merged(one for one in news if isinstance(one, Delta))


def _max_news(sampling: Sampling) -> int:
    return sampling.num_choices * (sampling.max_tokens + 1) + 1
