"""Redis's wall clock is set, really: nodes that die are found in time, and none that lives is buried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from services.scheduler.core import NODE_TIMEOUT_S, SchedulerCore
from shared.bus import streams
from shared.bus.bus import connect
from shared.config.config import ClusterConfig
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.nodes.nodes import Heartbeat, NodeDown, NodeFacts
from shared.service.background.tasks import cancel_all
from shared.service.driver import Driver
from tests.chaos.clock import SetClock
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

BEAT_S = 0.5
STEPS_S = (-600.0, -1.0, 1.0, 600.0)
FOUND_S = 15.0  # the promise, on a busy machine too


def beat(node: str) -> bytes:
    heartbeat = Heartbeat(
        node=node,
        epoch=f"{node}-1",
        facts=NodeFacts(device="cpu", swap_s=0.0),
        model="",
        num_blocks=0,
        num_free_blocks=0,
        num_running=0,
        num_waiting=0,
    )
    return encode(heartbeat)


async def live(redis: Redis, node: str) -> None:
    while True:
        await redis.xadd(streams.SCHEDULER, {FIELD: beat(node)})
        await asyncio.sleep(BEAT_S)


async def deaths(redis: Redis) -> list[str]:
    entries: Any = await redis.xrange(streams.QUEUE)
    messages = [decode_entry(fields) for _, fields in entries]
    return [message.node for message in messages if isinstance(message, NodeDown)]


async def test_a_node_that_dies_behind_a_step_is_found_and_the_other_lives(tmp_path: Path) -> None:
    """Four servers side by side: most of the time is waiting for a node's silence."""
    clocks = [SetClock(folder) for folder in folders(tmp_path)]
    if clocks[0].why_not:
        pytest.skip(clocks[0].why_not)
    async with asyncio.TaskGroup() as lives:
        for folder, clock, step_s in zip(folders(tmp_path), clocks, STEPS_S, strict=True):
            lives.create_task(live_behind(folder, clock, step_s))


def folders(path: Path) -> list[Path]:
    """One a server."""
    found = [path / str(number) for number in range(len(STEPS_S))]
    for folder in found:
        folder.mkdir(exist_ok=True)
    return found


async def live_behind(folder: Path, clock: SetClock, step_s: float) -> None:
    """Two nodes and a scheduler, whose Redis has its clock set while one of the nodes dies."""
    server = OwnServer(folder, environment=clock.environment)
    await server.start()
    redis = connect(server.url)
    driver = Driver(
        lambda: SchedulerCore(ClusterConfig()),
        redis,
        service="scheduler",
        inbox=streams.SCHEDULER,
        instance="one",
        reconnect=lambda: connect(server.url),
    )
    leading = asyncio.create_task(driver.run(asyncio.Event()))
    dying, living = (asyncio.create_task(live(redis, node)) for node in ("n0", "n1"))
    try:

        async def are_known() -> bool:
            return driver.core is not None and len(driver.core.state.nodes) == 2

        await until(are_known)
        before: Any = await redis.time()
        clock.set(step_s)

        async def is_set() -> bool:
            after: Any = await redis.time()
            return bool(abs(after[0] - before[0] - step_s) <= 2)

        await until(is_set)  # it reads its clock now and then
        await cancel_all([dying])
        died_at_s = asyncio.get_running_loop().time()

        async def is_found() -> bool:
            return bool(await deaths(redis))

        await until(is_found, FOUND_S)
        assert asyncio.get_running_loop().time() - died_at_s > NODE_TIMEOUT_S - 2 * BEAT_S, "not by the step itself"
        assert await deaths(redis) == ["n0"]
    finally:
        await cancel_all([leading, dying, living])
        await redis.aclose()
        server.kill()
        clock.close()
