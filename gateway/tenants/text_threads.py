"""Threads on which long texts become tokens: a few, which tenants get by turns.

Half a million characters take a processor for half a second. A tenant that sends a hundred of them in one instant waits
behind itself: another tenant's text is the next but those that are at work.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")

MAX_THREADS = 8
"""Tokenisers let the interpreter go while they work: as many run at a time as there are processors, and no more."""


class TextThreads:
    """Of one process. A tenant that is cancelled while it waits takes nobody's turn."""

    def __init__(self, num_threads: int | None = None) -> None:
        """``num_threads``: by default one a processor."""
        num_threads = num_threads or min(MAX_THREADS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(num_threads, "texts")
        self._num_left = num_threads
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by tenant; whose turn it is comes first

    def of(self, tenant: str) -> TenantThreads:
        """As one tenant has them."""
        return TenantThreads(self, tenant)

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """What ``work`` answers, or raises; on a thread, when it is the tenant's turn."""
        await self._turn(tenant)
        loop = asyncio.get_running_loop()

        def left(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._leave)

        running = self._threads.submit(work)
        running.add_done_callback(left)  # also where nobody waits for it any more: until then the thread is taken
        return await asyncio.wrap_future(running)

    async def _turn(self, tenant: str) -> None:
        if self._num_left and not self._waiting:
            self._num_left -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given the turn in the same instant
                self._leave()
            raise

    def _leave(self) -> None:
        self._num_left += 1
        while self._waiting and self._num_left:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            one = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind the others
            if not one.done():
                one.set_result(None)
                self._num_left -= 1

    def close(self) -> None:
        """Nobody sends texts any more; what is at work comes to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class TenantThreads:
    """`TextThreads`, for one tenant."""

    threads: TextThreads
    tenant: str

    async def run(self, work: Callable[[], T]) -> T:
        """As `TextThreads.run`."""
        return await self.threads.run(self.tenant, work)


TEXT_THREADS = web.AppKey("TEXT_THREADS", TextThreads)
