"""A request in flight: how far its answer is, and the way of its text to the HTTP handler."""

from __future__ import annotations

import asyncio

from gateway.delta import Delta, Failure, merged
from gateway.generation import Generation, Verdict
from gateway.job import Job
from shared.messages import Chunk, Payload, Submit


class InflightRequest:
    """A job and its answer so far.

    The dispatcher puts news in and never waits; the handler takes them out at its client's pace. What a slow client
    leaves lying is bounded: a delta holds at least one token or is the last of its choice, a choice takes no more than
    max_tokens tokens, and a failure comes once, after all deltas. So one slow client delays no other, and costs no
    more than its own answer.
    """

    def __init__(self, job: Job, gateway: str) -> None:
        self.job = job
        self.generation = Generation(job.token_bytes, job.stops, job.sampling)
        self._gateway = gateway
        max_deltas = job.sampling.num_choices * (job.sampling.max_tokens + 1)
        self._news: asyncio.Queue[Delta | Failure] = asyncio.Queue(maxsize=max_deltas + 1)

    @property
    def is_complete(self) -> bool:
        """The handler has been given all there is."""
        return self.generation.is_over and self._news.empty()

    def messages(self, attempt: int) -> tuple[Payload, Submit]:
        """What puts this attempt into the queue, with the answer so far."""
        return self.job.messages(self._gateway, attempt, self.generation.outputs)

    def take(self, chunk: Chunk) -> Verdict | None:
        """Hand a chunk's news to the handler; otherwise say why there are none."""
        found = self.generation.accept(chunk)
        if isinstance(found, Verdict):
            return found
        self._news.put_nowait(found)
        return None

    def give_up(self) -> None:
        """Tell the handler that there will be no answer, unless it has one already."""
        if not self.generation.is_over:
            self._news.put_nowait(self.generation.give_up())

    async def next_deltas(self, timeout_s: float) -> list[Delta] | Failure | None:
        """All that is new, one delta a choice; None if nothing comes within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                news = [await self._news.get()]
        except TimeoutError:
            return None
        while not self._news.empty():
            news.append(self._news.get_nowait())
        failure = next((one for one in news if isinstance(one, Failure)), None)
        return failure or merged(one for one in news if isinstance(one, Delta))
