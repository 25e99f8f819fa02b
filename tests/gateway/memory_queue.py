"""The cluster behind the gateway, in memory: it keeps payloads as Redis would, and answers as nodes would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from gateway.inflight.dispatcher import Dispatcher, Inbound
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import (
    Attempt,
    Chunk,
    QueueLine,
    QueuePlace,
    QueueStatus,
    Rejected,
    Resubmit,
    Submit,
    Tokens,
)
from shared.messages.requests.token_logprob import TokenLogprob

Answer = Callable[[Payload], Sequence[Chunk]]
WAIT_S = 5.0


class MemoryQueue:
    """A `QueuePort`. With ``answer`` it plays the nodes too; without, the test sends the tokens itself."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.payloads: dict[str, Payload] = {}
        self.submits: asyncio.Queue[Submit] = asyncio.Queue()
        self.cancels: asyncio.Queue[str] = asyncio.Queue()
        self.finishes: asyncio.Queue[str] = asyncio.Queue()
        self.is_down = False
        self.is_full = False
        self._inbox: asyncio.Queue[Inbound] = asyncio.Queue()

    async def submit(self, payload: Payload, submit: Submit) -> None:
        self._check()
        if self.is_full and submit.attempt == 0:
            raise QueueFullError("command not allowed when used memory > 'maxmemory'")
        assert (payload.request_id, payload.attempt) == (submit.request_id, submit.attempt)
        self.payloads[payload.request_id] = payload
        self.submits.put_nowait(submit)
        for chunk in self.answer(payload) if self.answer else []:
            self._inbox.put_nowait(Tokens(node="node-0", chunks=[chunk]))

    async def cancel(self, request_id: str) -> None:
        self._check()
        self.payloads.pop(request_id, None)
        self.cancels.put_nowait(request_id)

    async def finish(self, request_id: str) -> None:
        self._check()
        self.payloads.pop(request_id, None)  # a late `Resubmit` may have cancelled it
        self.finishes.put_nowait(request_id)

    async def serve(self, dispatcher: Dispatcher) -> None:
        """Deliver what comes, in its order, as the reader of the token stream does."""
        while True:
            await dispatcher.deliver(await self._inbox.get())
            self._inbox.task_done()

    # --- what tests do with it --------------------------------------------------------------------------------------

    async def next_submit(self) -> Submit:
        return await asyncio.wait_for(self.submits.get(), WAIT_S)

    async def next_cancel(self) -> str:
        return await asyncio.wait_for(self.cancels.get(), WAIT_S)

    async def next_finish(self) -> str:
        return await asyncio.wait_for(self.finishes.get(), WAIT_S)

    async def send(
        self,
        submit: Submit,
        index: int,
        token_ids: Sequence[int],
        finish_reason: str = "",
        *,
        choice: int = 0,
        is_last: bool | None = None,
        logprobs: Sequence[TokenLogprob] = (),
        cached_tokens: int | None = None,
        embedding: bytes = b"",
    ) -> None:
        """One chunk for this attempt; returns when the gateway has taken it. With one choice its end is the last."""
        chunk = Chunk(
            submit.request_id,
            submit.attempt,
            index,
            list(token_ids),
            finish_reason,
            choice=choice,
            logprobs=list(logprobs),
            is_last=bool(finish_reason) if is_last is None else is_last,
            cached_tokens=cached_tokens,
            embedding=embedding,
        )
        await self._deliver(Tokens(node="node-0", chunks=[chunk]))

    async def lose(self, *submits: Submit) -> None:
        """The node that ran these attempts is lost."""
        await self._deliver(_resubmit(*submits))

    async def crash(self, *submits: Submit) -> None:
        """The engine that ran these attempts has died."""
        await self._deliver(_resubmit(*submits, has_crashed=True))

    async def reject(self, submit: Submit, wait_s: float, retry_after_s: float) -> None:
        """The queue manager says that the promise cannot be kept."""
        rejected = Rejected(
            request_id=submit.request_id, attempt=submit.attempt, wait_s=wait_s, retry_after_s=retry_after_s
        )
        await self._deliver(rejected)

    async def report(self, *lines: QueueLine, places: Sequence[QueuePlace] = ()) -> None:
        """The queue manager says how the queue stands."""
        await self.tell(QueueStatus(lines=list(lines), places=list(places)))

    async def tell(self, status: QueueStatus) -> None:
        """The same, in its own words."""
        await self._deliver(status)

    async def _deliver(self, message: Inbound) -> None:
        self._inbox.put_nowait(message)
        await asyncio.wait_for(self._inbox.join(), WAIT_S)

    def _check(self) -> None:
        if self.is_down:
            raise QueueUnavailableError("connection refused")


def _resubmit(*submits: Submit, has_crashed: bool = False) -> Resubmit:
    attempts = [Attempt(submit.request_id, submit.attempt) for submit in submits]
    return Resubmit(requests=attempts, has_crashed=has_crashed)


def saying(text: str, finish_reason: str = "stop", size: int = 3) -> Answer:
    """Nodes that answer every request with this text, in chunks of ``size`` tokens, as far as max_tokens allows."""

    def answer(payload: Payload) -> list[Chunk]:
        wanted = [*text.encode(), *(payload.sampling.stop_token_ids if finish_reason == "stop" else [])]
        tokens = wanted[: payload.sampling.max_tokens]
        reason = finish_reason if len(tokens) == len(wanted) else "length"
        starts = range(sum(len(one.token_ids) for one in payload.outputs), len(tokens), size)
        return [
            Chunk(
                payload.request_id,
                payload.attempt,
                start,
                tokens[start : start + size],
                reason if start + size >= len(tokens) else "",
                is_last=start + size >= len(tokens),
            )
            for start in starts
        ]

    return answer


def saying_each(*texts: str, size: int = 3) -> Answer:
    """Nodes that answer every request with these choices, side by side; each ends with an end token.

    Where logprobs are asked for, a token's is its id below zero; the most likely tokens are the ids from 97 on.
    """

    def scores(payload: Payload, token_ids: Sequence[int]) -> list[TokenLogprob]:
        num_logprobs = payload.sampling.num_logprobs
        if num_logprobs is None:
            return []
        top = [(97 + place, -0.5 - place) for place in range(num_logprobs)]
        return [TokenLogprob(-float(token_id), top) for token_id in token_ids]

    def answer(payload: Payload) -> list[Chunk]:
        choices = [[*text.encode(), *payload.sampling.stop_token_ids] for text in texts]
        chunks = [
            Chunk(
                payload.request_id,
                payload.attempt,
                start,
                tokens[start : start + size],
                "stop" if start + size >= len(tokens) else "",
                choice=choice,
                logprobs=scores(payload, tokens[start : start + size]),
            )
            for start in range(0, max(map(len, choices)), size)
            for choice, tokens in enumerate(choices)
            if start < len(tokens)
        ]
        return [*chunks[:-1], msgspec.structs.replace(chunks[-1], is_last=True)]

    return answer
