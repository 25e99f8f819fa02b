"""Threads on which requests are prepared: a few of each kind, which tenants get by turns.

Half a million characters take a processor for half a second until they are tokens, and so do a large schema and a large
image. A tenant that sends a hundred of them in one instant waits behind itself: another tenant's is the next but those
that are at work.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from gateway.tenants.turns import TenantTurns

T = TypeVar("T")

MAX_TEXT_THREADS = 8
"""Tokenisers let the interpreter go while they work: as many run at a time as there are processors, and no more."""

NUM_GRAMMAR_THREADS = 2
"""So that such constraints wait for each other and not for all cores."""

NUM_PICTURE_THREADS = 1
"""One image after the other: each may take the memory of its pixels, and most of its time without that lock."""


class TurnThreads:
    """Of one kind."""

    def __init__(self, num_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(num_threads, name)
        self._turns = TenantTurns(num_threads)

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """What ``work`` answers, or raises; on a thread, when it is the tenant's turn."""
        await self._turns.take(tenant)
        loop = asyncio.get_running_loop()

        def left(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._turns.give_back)

        running = self._threads.submit(work)
        running.add_done_callback(left)  # also where nobody waits for it any more: until then the thread is taken
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Nobody sends any more; what is at work comes to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class PreparingThreads:
    """Of one process."""

    def __init__(self) -> None:
        self.texts = TurnThreads(min(MAX_TEXT_THREADS, os.cpu_count() or 1), "texts")
        self.grammars = TurnThreads(NUM_GRAMMAR_THREADS, "grammars")
        self.pictures = TurnThreads(NUM_PICTURE_THREADS, "pictures")

    def of(self, tenant: str) -> TenantThreads:
        """As one tenant has them."""
        return TenantThreads(self, tenant)

    def close(self) -> None:
        """As `TurnThreads.close`."""
        for threads in (self.texts, self.grammars, self.pictures):
            threads.close()


@dataclass(frozen=True, slots=True)
class TenantThreads:
    """`PreparingThreads`, for one tenant. Each answers, or raises, what ``work`` does."""

    threads: PreparingThreads
    tenant: str

    async def run_text(self, work: Callable[[], T]) -> T:
        """Of a long text."""
        return await self.threads.texts.run(self.tenant, work)

    async def run_grammar(self, work: Callable[[], T]) -> T:
        """Of what an output is to be."""
        return await self.threads.grammars.run(self.tenant, work)

    async def run_pictures(self, work: Callable[[], T]) -> T:
        """Of images."""
        return await self.threads.pictures.run(self.tenant, work)


THREADS = web.AppKey("THREADS", PreparingThreads)
