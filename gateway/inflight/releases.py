"""Requests that are over, until the queue has been told: a queue that is away is told when it is back.

A request whose end is not told would wait and run in vain. So its end is never given up while this process lives;
memory is bounded instead, and the handler and its slot are free as soon as the queue has been asked once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice

import structlog

from gateway.inflight.queue_port import QueuePort, QueueUnavailableError

TOLD_TOGETHER = 128  # of those that wait, once one of them was heard: thousands are told within a second
RETRY_S = 0.5  # a queue that is away is asked again so often
MAX_UNTOLD = 65_536  # ends that wait for it; beyond, the oldest is forgotten: its payload expires, its work is in vain
DRAIN_S = 15.0  # for so long a process that ends waits for a queue that is away

# A submit whose end is not known may still be on its way, in a connection that is not read any more. A Redis that
# answers a cancel reads all connections, so a cancel that comes this long after one that was answered is behind it.
SURELY_S = 5.0

_log = structlog.get_logger(__name__)


class Releases:
    """Tells the queue what is over: each request once, and more often only where it may not have been heard."""

    def __init__(self, queue: QueuePort) -> None:
        self._queue = queue
        self._untold: dict[str, Callable[[str], Awaitable[None]]] = {}
        self._unsure: deque[tuple[float, str]] = deque(maxlen=MAX_UNTOLD)
        self._work: asyncio.Task[None] | None = None

    async def tell(self, request_id: str, *, ended_by_node: bool, is_unsure: bool = False) -> None:
        """Once now, and if the queue is away in the background. ``is_unsure``: its submit may come behind this."""
        call = self._queue.finish if ended_by_node else self._queue.cancel
        if is_unsure:
            self._unsure.append((asyncio.get_running_loop().time() + SURELY_S, request_id))
        if not await self._is_told(request_id, call):
            self._untold[request_id] = call
            if len(self._untold) > MAX_UNTOLD:
                forgotten = next(iter(self._untold))
                del self._untold[forgotten]
                _log.error("release_given_up", request_id=forgotten)
        if (self._untold or self._unsure) and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._tell_rest())

    async def drain(self) -> None:
        """Wait until all are told, no longer than DRAIN_S."""
        if self._work is None:
            return
        done, _ = await asyncio.wait([self._work], timeout=DRAIN_S)
        if not done:
            _log.error("releases_given_up", num_requests=len(self._untold))
            self._work.cancel()

    async def _tell_rest(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._untold or self._unsure:
            await asyncio.sleep(RETRY_S)
            while await self._tell_oldest(1) and await self._tell_oldest(TOLD_TOGETHER):
                pass  # one alone first: where it is away for that one, it is for the others as well
            while not self._untold and self._unsure and self._unsure[0][0] <= clock():
                _, request_id = self._unsure.popleft()
                if not await self._is_told(request_id, self._queue.cancel):
                    self._untold[request_id] = self._queue.cancel

    async def _tell_oldest(self, number: int) -> bool:
        """Whether there were any, and all of them were told."""
        oldest = list(islice(self._untold.items(), number))
        told = await asyncio.gather(*(self._is_told(request_id, call) for request_id, call in oldest))
        for (request_id, _), is_told in zip(oldest, told, strict=True):
            if is_told:
                self._untold.pop(request_id, None)  # unless it was forgotten meanwhile
        return bool(oldest) and all(told)

    async def _is_told(self, request_id: str, call: Callable[[str], Awaitable[None]]) -> bool:
        try:
            await call(request_id)
        except QueueUnavailableError as error:
            _log.warning("release_failed", request_id=request_id, error=str(error))
            return False
        return True
