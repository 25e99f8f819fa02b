"""A request in flight: how far its answer is, and the way of its text to the HTTP handler."""

from __future__ import annotations

import asyncio

from gateway.generation import Delta, Generation, Verdict
from gateway.job import Job
from shared.messages import Chunk, Payload, Submit


class InflightRequest:
    """A job and its answer so far.

    The dispatcher puts deltas in and never waits; the handler takes them out at its client's pace. What a slow client
    leaves lying is bounded: a delta holds at least one token or is the last, and `Generation` takes no more than
    max_tokens tokens. So one slow client delays no other, and costs no more than its own answer.
    """

    def __init__(self, job: Job, gateway: str) -> None:
        self.job = job
        self.generation = Generation(job.token_bytes, job.stops, job.sampling.max_tokens)
        self._gateway = gateway
        self._deltas: asyncio.Queue[Delta] = asyncio.Queue(maxsize=job.sampling.max_tokens + 1)

    def messages(self, attempt: int) -> tuple[Payload, Submit]:
        """What puts this attempt into the queue, with the answer so far."""
        return self.job.messages(self._gateway, attempt, self.generation.output_token_ids)

    def take(self, chunk: Chunk) -> Verdict | None:
        """Hand a chunk's news to the handler; otherwise say why there are none."""
        found = self.generation.accept(chunk)
        if isinstance(found, Verdict):
            return found
        self._deltas.put_nowait(found)
        return None

    def give_up(self) -> None:
        """Tell the handler that there will be no answer, unless it has one already."""
        if not self.generation.is_over:
            self._deltas.put_nowait(self.generation.give_up())

    async def next_delta(self, timeout_s: float) -> Delta | None:
        """All that is new, in one piece; None if nothing comes within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                delta = await self._deltas.get()
        except TimeoutError:
            return None
        while not self._deltas.empty():
            delta += self._deltas.get_nowait()
        return delta
