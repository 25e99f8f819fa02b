"""The requests in flight of one gateway, between the queue and the HTTP handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import structlog

from gateway import tracing
from gateway.call import InflightCall
from gateway.generation import Verdict
from gateway.job import Job
from gateway.queue_port import QueuePort, QueueUnavailableError
from gateway.queue_view import QueueView
from gateway.request import InflightRequest
from shared.requests import QueueStatus, Rejected, Resubmit, Tokens

# How long a queue that is away is told again about a request that is over; its slot is free meanwhile.
RELEASE_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0)

Inbound = Tokens | Resubmit | Rejected | QueueStatus
"""What the cluster says to a gateway."""

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Submits jobs, and hands what comes back to the handler that waits for it.

    The number of requests is bounded by the `Slots` of the handlers.
    """

    def __init__(self, queue: QueuePort, gateway_id: str) -> None:
        self._queue = queue
        self._gateway_id = gateway_id
        self._inflight: dict[str, InflightRequest] = {}
        self.view = QueueView()
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def num_inflight(self) -> int:
        """Requests whose answer is not complete, or not yet sent."""
        return len(self._inflight)

    @asynccontextmanager
    async def run(self, *jobs: Job) -> AsyncIterator[InflightCall]:
        """Submit the jobs of a call; on leaving, however it is left, the queue is told and nothing of them remains."""
        call = InflightCall(jobs, self._gateway_id, self.view)
        begun: list[InflightRequest] = []
        try:
            for request in call.requests:
                begun.append(request)
                # before the submit: the first token may be faster than its return
                self._inflight[request.job.request_id] = request
                await self._queue.submit(*request.messages(attempt=0))
            yield call
        finally:
            for request in begun:
                del self._inflight[request.job.request_id]
            # A handler is cancelled when its client leaves; telling the queue must go through all the same.
            await asyncio.shield(self._in_background(self._release_all(begun)))

    async def deliver(self, message: Inbound) -> None:
        """Take one message from the token stream. Messages are delivered one after the other, in their order.

        Raises `QueueUnavailableError` when a request could not be submitted again; delivering the same message once
        more is right then: what it has already done is recognised and not done twice.
        """
        match message:
            case Tokens():
                for chunk in message.chunks:
                    request = self._inflight.get(chunk.request_id)
                    if request is not None and request.take(chunk) is Verdict.GAP:
                        _log.warning("token_gap", request_id=chunk.request_id, attempt=chunk.attempt, node=message.node)
                        await self._try_again(request)
            case Resubmit():
                for lost in message.requests:
                    request = self._inflight.get(lost.request_id)
                    if request is not None and request.generation.attempt == lost.attempt:
                        await self._try_again(request, gave_way=message.gave_way)
            case Rejected():
                if request := self._inflight.get(message.request_id):
                    request.reject(message)
            case QueueStatus():
                self.view.update(message, asyncio.get_running_loop().time())
                for place in message.places:
                    if request := self._inflight.get(place.request_id):
                        request.show(place)

    def give_up_all(self) -> None:
        """End every answer: the cluster has forgotten these requests, so no token will come for them."""
        for request in self._inflight.values():
            request.give_up()

    async def drain(self) -> None:
        """Wait until the queue has been told about every request that is over."""
        while self._releases:
            await asyncio.wait(self._releases)

    async def _try_again(self, request: InflightRequest, *, gave_way: bool = False) -> None:
        generation = request.generation
        if generation.is_over:
            return
        if not gave_way and not generation.may_try_again():
            request.give_up()
            return
        attempt = generation.attempt + 1
        await self._queue.submit(*request.messages(attempt))
        # after the submit, so that a failed one can be delivered again
        generation.begin_attempt(attempt, gave_way=gave_way)
        request_id = request.job.request_id
        if request_id in self._inflight:
            tracing.note_resubmission(request.job, attempt, gave_way=gave_way)
        else:  # the client left meanwhile, and its Cancel may have come first
            await self._queue.cancel(request_id)

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._releases.add(task)
        task.add_done_callback(self._release_ended)
        return task

    def _release_ended(self, task: asyncio.Task[None]) -> None:
        self._releases.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("release_failed", exc_info=error)

    async def _release_all(self, requests: list[InflightRequest]) -> None:
        await asyncio.gather(*map(self._release, requests))

    async def _release(self, request: InflightRequest) -> None:
        """Tell the queue once; should it be away, go on trying without keeping the client."""
        if not await self._is_released(request):
            self._in_background(self._release_later(request))

    async def _release_later(self, request: InflightRequest) -> None:
        for delay_s in RELEASE_DELAYS_S:
            await asyncio.sleep(delay_s)
            if await self._is_released(request):
                return
        # The payload expires, and tokens of an unknown request are dropped: what is lost is the work of one answer.
        _log.error("release_given_up", request_id=request.job.request_id)

    async def _is_released(self, request: InflightRequest) -> bool:
        request_id = request.job.request_id
        try:
            if request.generation.ended_by_node:
                await self._queue.finish(request_id)
            else:
                await self._queue.cancel(request_id)
        except QueueUnavailableError as error:
            _log.warning("release_failed", request_id=request_id, error=str(error))
            return False
        return True
