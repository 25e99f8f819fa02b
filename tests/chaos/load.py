"""Steady load: clients that ask one thing after another, through both gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import aiohttp

from tests.chaos.asks import draw_ask, longest_asks
from tests.chaos.client import perform
from tests.chaos.history import Ask, History, Request
from tests.chaos.member import Member

NUM_CLIENTS = 4
"""As many requests at a time: enough that streams of both models always run, and little enough for two shared cores."""
MEAN_PAUSE_S = 0.6
REFUSED_PAUSE_S = 1.0
UNDISTURBED_TRIES = 3


class Load:
    """The clients of a run."""

    def __init__(self, gateways: list[Member], history: History, seed: int, now: Callable[[], float]) -> None:
        self._gateways = gateways
        self._history = history
        self._seed = seed
        self._now = now
        self._stop = asyncio.Event()
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []
        # a connection for each request: a kept one would tell the next request of a gateway's death
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=aiohttp.ClientTimeout(total=None)
        )

    async def learn_undisturbed(self) -> None:
        """Each question once, before anything is done to the cluster."""
        for ask in longest_asks():
            for _ in range(UNDISTURBED_TRIES):
                request = await self.ask(self._gateways[0], ask)
                if request.end == "whole":
                    break
            else:
                raise RuntimeError(f"no answer from a cluster that nobody disturbs: {request.end} {request.why}")
            self._history.undisturbed[ask.key] = request

    async def ask(self, gateway: Member, ask: Ask, patience_s: float | None = None) -> Request:
        """One request that is no part of the load."""
        self._number += 1
        request = Request(number=self._number, gateway=gateway.name, ask=ask, sent_s=self._now())
        limit = {} if patience_s is None else {"patience_s": patience_s}
        await perform(self._session, gateway.clients_url, request, self._now, **limit)
        return request

    def start(self) -> None:
        """All clients begin."""
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(NUM_CLIENTS)]

    async def stop(self) -> None:
        """No new requests; returns when the last has ended."""
        self._stop.set()
        for task in self._tasks:
            await task

    async def close(self) -> None:
        """For good, whatever runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _client(self, number: int) -> None:
        random = Random(f"{self._seed}/{number}")
        while not self._stop.is_set():
            gateway = random.choice(self._gateways)
            self._number += 1
            request = Request(number=self._number, gateway=gateway.name, ask=draw_ask(random), sent_s=self._now())
            self._history.requests.append(request)
            await perform(self._session, gateway.clients_url, request, self._now)
            is_refused = request.end == "refused" or not request.status
            pause_s = REFUSED_PAUSE_S if is_refused else random.expovariate(1 / MEAN_PAUSE_S)
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
