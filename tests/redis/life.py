"""One life of a driver inside the test: begun with a client of its own, ended by a kill unless it is stopped before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from shared.bus.bus import connect
from shared.service.background.solver import Solver
from shared.service.background.tasks import cancel_all
from shared.service.core import Core
from shared.service.driver import Driver
from shared.service.log.durability import Waiting
from tests.redis.counting import INBOX, SERVICE, CountingCore, committed_id
from tests.redis.waiting import PATIENCE_S, until


@dataclass(slots=True)
class Life:
    """A running driver."""

    driver: Driver[Core]
    task: asyncio.Task[None]
    stop: asyncio.Event
    redis: Redis

    async def leads(self) -> None:
        """Wait until this instance has a core."""

        async def has_core() -> bool:
            if self.task.done():
                self.task.result()
            return self.driver.core is not None

        await until(has_core)

    async def is_through(self) -> None:
        """Wait until everything in the inbox has been handled and no Tick is due."""

        async def nothing_is_left() -> bool:
            if self.task.done():
                self.task.result()
            core = self.driver.core
            newest: Any = await self.redis.xrevrange(INBOX, count=1)
            return core is not None and core.wake_at is None and await committed_id(self.redis) == newest[0][0]

        await until(nothing_is_left)

    async def kill(self) -> None:
        """End it wherever it is."""
        await cancel_all([self.task])

    async def end(self) -> None:
        """Stop politely."""
        self.stop.set()
        await asyncio.wait_for(self.task, PATIENCE_S)


@asynccontextmanager
async def life(
    url: str,
    make_core: Callable[[], Core] = CountingCore,
    instance: str = "one",
    make_solver: Callable[[Redis], Solver] | None = None,
    waiting: Waiting | None = None,
) -> AsyncIterator[Life]:
    """Run a driver; leaving the block kills it wherever it is. Sockets are closed after that, as a kernel does."""
    redis = connect(url)
    solver = make_solver(redis) if make_solver else None
    stop = asyncio.Event()
    driver = Driver(
        make_core,
        redis,
        service=SERVICE,
        inbox=INBOX,
        instance=instance,
        reconnect=lambda: connect(url),
        solver=solver,
        waiting=waiting,
    )
    task = asyncio.create_task(driver.run(stop))
    try:
        yield Life(driver, task, stop, redis)
    finally:
        ended = task.done() and not task.cancelled()
        await cancel_all([task])
        if solver:
            await solver.close()
        await redis.aclose()
    if ended:
        task.result()  # a driver that ended by itself says why
