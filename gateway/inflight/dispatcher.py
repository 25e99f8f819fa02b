"""The requests in flight of one gateway, between the queue and the HTTP handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from gateway.generation.generation import Verdict
from gateway.inflight import tracing
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.calls.job import Job
from gateway.inflight.calls.request import InflightRequest
from gateway.inflight.calls.rounds import Rounds
from gateway.inflight.coalescing import Coalescing
from gateway.inflight.queue_port import QueueFullError, QueuePort, QueueUnavailableError
from gateway.inflight.queue_view import QueueView
from gateway.inflight.releases import Releases
from shared.messages.requests.requests import Attempt, QueueStatus, Rejected, Resubmit, Tokens

Inbound = Tokens | Resubmit | Rejected | QueueStatus
"""What the cluster says to a gateway."""

SUBMITS_A_ROUND = 16  # of one call, which are on their way together

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Submits jobs, and hands what comes back to the handler that waits for it.

    The number of requests is bounded by the `Slots` of the handlers.
    """

    def __init__(self, queue: QueuePort, gateway_id: str, coalescing: Coalescing | None = None) -> None:
        """Without ``coalescing`` each token goes out by itself as long as it can."""
        self._queue = queue
        self._gateway_id = gateway_id
        self._inflight: dict[str, InflightRequest] = {}
        self.view = QueueView()
        self._rounds = Rounds(coalescing or Coalescing(0.0))
        self._releases = Releases(queue)
        self._ending: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def num_inflight(self) -> int:
        """Requests whose answer is not complete, or not yet sent."""
        return len(self._inflight)

    @property
    def num_held_writes(self) -> int:
        """How often tokens have waited for the next ones of their answers."""
        return self._rounds.num_held

    def attempts(self) -> list[Attempt]:
        """Those whose answers are not complete."""
        return [
            Attempt(request_id, request.generation.attempt)
            for request_id, request in self._inflight.items()
            if not request.generation.is_over
        ]

    @asynccontextmanager
    async def run(self, *jobs: Job) -> AsyncIterator[InflightCall]:
        """Submit the jobs of a call; on leaving, however it is left, the queue is told and nothing of them remains."""
        call = InflightCall(jobs, self._gateway_id, self.view, self._rounds)
        begun: dict[str, asyncio.Task[None]] = {}
        try:
            for start in range(0, len(call.requests), SUBMITS_A_ROUND):
                portion = call.requests[start : start + SUBMITS_A_ROUND]
                if self._is_stopping:
                    portion[0].stop()
                    break
                for request in portion:
                    # before the submit: the first token may be faster than its return
                    self._inflight[request.job.request_id] = request
                    begun[request.job.request_id] = asyncio.create_task(self._submit(request, 0))
                for request in portion:
                    await asyncio.shield(begun[request.job.request_id])
            yield call
        finally:
            call.close()
            await self._end({request_id: self._inflight.pop(request_id) for request_id in begun}, begun)

    async def deliver(self, message: Inbound) -> None:
        """Take one message from the token stream. Messages are delivered one after the other, in their order.

        Raises `QueueUnavailableError` when a request could not be submitted again; delivering the same message once
        more is right then: what it has already done is recognised and not done twice.
        """
        match message:
            case Tokens():
                for chunk in message.chunks:
                    request = self._inflight.get(chunk.request_id)
                    if request is not None and request.take(chunk, message.node) is Verdict.GAP:
                        _log.warning("token_gap", request_id=chunk.request_id, attempt=chunk.attempt, node=message.node)
                        await self._try_again(request)
            case Resubmit():
                await self._resubmit(message)
            case Rejected():
                if request := self._inflight.get(message.request_id):
                    request.reject(message)
            case QueueStatus():
                self.view.update(message, _now())
                for place in message.places:
                    if request := self._inflight.get(place.request_id):
                        request.show(place)

    async def _resubmit(self, message: Resubmit) -> None:
        for lost in message.requests:
            request = self._inflight.get(lost.request_id)
            if request is None or request.generation.is_over:
                await self._queue.cancel(lost.request_id)  # or it would be waited for: an end was not heard
            elif request.generation.attempt == lost.attempt:
                await self._try_again(request, gave_way=message.gave_way, has_crashed=message.has_crashed)

    def stop(self) -> None:
        """End every answer, and those that are asked for from now on: this process is about to end."""
        self._is_stopping = True
        for request in self._inflight.values():
            if not request.generation.is_over:
                request.stop()

    async def drain(self) -> None:
        """Wait until the queue has been told about every request that is over."""
        while self._ending:
            await asyncio.wait(self._ending)
        await self._releases.drain()

    async def _try_again(self, request: InflightRequest, *, gave_way: bool = False, has_crashed: bool = False) -> None:
        generation = request.generation
        if generation.is_over:
            return
        if not generation.may_try_again(gave_way=gave_way, has_crashed=has_crashed):
            _give_up(request, has_crashed=has_crashed)
            return
        attempt = generation.attempt + 1
        await self._submit(request, attempt, has_crashed=has_crashed)
        # after the submit, so that a failed one can be delivered again
        generation.begin_attempt(attempt, gave_way=gave_way, has_crashed=has_crashed)
        request_id = request.job.request_id
        if request_id in self._inflight:
            tracing.note_resubmission(request.job, attempt, gave_way=gave_way)
        else:  # the client left meanwhile, and its Cancel may have come first
            await self._queue.cancel(request_id)

    async def _submit(self, request: InflightRequest, attempt: int, *, has_crashed: bool = False) -> None:
        try:
            await self._queue.submit(*request.messages(attempt, _now(), has_crashed=has_crashed))
        except QueueUnavailableError as error:
            request.is_unsure |= not isinstance(error, QueueFullError)
            raise

    async def _end(self, over: dict[str, InflightRequest], submits: dict[str, asyncio.Task[None]]) -> None:
        """Tell the queue. A handler is cancelled when its client leaves: what it may not have said is said again."""
        try:
            await self._tell(over, submits)
        except asyncio.CancelledError:
            ending = asyncio.create_task(self._tell(over, submits))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    async def _tell(self, over: dict[str, InflightRequest], submits: dict[str, asyncio.Task[None]]) -> None:
        """Behind the submits: a cancel that overtakes its submit leaves a request without a client."""
        for request_id, request in over.items():
            if not submits[request_id].done():
                await asyncio.wait([submits[request_id]])
            submits[request_id].exception()  # told to the client already
            await self._releases.tell(
                request_id, ended_by_node=request.generation.ended_by_node, is_unsure=request.is_unsure
            )


def _give_up(request: InflightRequest, *, has_crashed: bool) -> None:
    if not has_crashed:
        request.give_up()
        return
    num_crashes = request.give_up_crashed()
    _log.error("request_crashes_engines", request_id=request.job.request_id, num_crashes=num_crashes)


def _now() -> float:
    return asyncio.get_running_loop().time()
