"""A request in flight: what was asked for, how far the answer is, and the way of its text to the HTTP handler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.generation import Delta, Generation, Verdict
from shared.messages import Chunk, Payload, Sampling, Submit
from shared.slo import Slo


@dataclass(frozen=True)
class Job:
    """One admitted request, complete and checked."""

    request_id: str
    model: str
    prompt_token_ids: list[int]
    sampling: Sampling
    stops: Sequence[str]
    token_bytes: Sequence[bytes] = field(repr=False)
    slo: Slo
    tenant: str
    traceparent: str = ""


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
        """What the queue needs for this attempt: everything the client has, and what is left to do."""
        job = self.job
        output = list(self.generation.output_token_ids)
        payload = Payload(
            request_id=job.request_id,
            attempt=attempt,
            gateway=self._gateway,
            model=job.model,
            prompt_token_ids=job.prompt_token_ids,
            sampling=job.sampling,
            output_token_ids=output,
            traceparent=job.traceparent,
        )
        submit = Submit(
            request_id=job.request_id,
            gateway=self._gateway,
            model=job.model,
            slo=job.slo,
            # the queue plans work: a resumed request has a longer prefill and fewer tokens to go
            prompt_tokens=len(job.prompt_token_ids) + len(output),
            max_tokens=job.sampling.max_tokens - len(output),
            tenant=job.tenant,
            attempt=attempt,
            traceparent=job.traceparent,
        )
        return payload, submit

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
