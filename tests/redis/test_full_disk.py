"""While Redis cannot write its log it takes nothing; all wait, and go on when there is room.

The disk is full by a limit on the size of files (RLIMIT_FSIZE), which needs no rights: a write beyond it fails as on
a full disk.
"""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from gpu_node.agent.decisions.actions import Pull
from gpu_node.agent.process.node_bus import NodeBus, PullRefusedError
from shared.bus import streams
from shared.bus.bus import connect
from shared.bus.redis_health import LOG, look
from shared.messages.codec import FIELD, encode
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Enqueued, Submit
from shared.messages.requests.slo import Slo
from tests.redis.counting import check_numbers, said, say
from tests.redis.life import life
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

ROOM = 256 << 10
PAYLOAD = Payload("r-1", 0, "gw-0", "m", [1, 2], Sampling(max_tokens=4))
SUBMIT = Submit(request_id="r-1", gateway="gw-0", model="m", slo=Slo(name="s"), prompt_tokens=2, max_tokens=4)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OwnServer]:
    """With ``everysec``: with ``always`` a Redis that cannot write ends, and its supervisor starts it again."""
    server = OwnServer(tmp_path, "--appendfsync", "everysec")
    try:
        await server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
async def redis(server: OwnServer) -> AsyncIterator[Redis]:
    async with connect(server.url) as client:
        yield client


async def fill_disk(server: OwnServer, redis: Redis) -> None:
    """Until Redis refuses what is written."""
    server.limit_files(ROOM)

    async def is_refused() -> bool:
        try:
            await redis.set("ballast", "x" * ROOM)
        except ResponseError as error:
            return str(error).startswith("MISCONF ")
        return False

    await until(is_refused)


async def test_a_service_waits_and_goes_on(server: OwnServer, redis: Redis) -> None:
    words = [f"w{number}" for number in range(200)]
    async with life(server.url) as one:
        await one.leads()
        await say(redis, *words[:100])
        await one.is_through()
        await fill_disk(server, redis)

        async def has_no_core() -> bool:
            return one.driver.core is None

        await until(has_no_core)
        assert (await look(redis)).failing == {LOG}
        server.limit_files(resource.RLIM_INFINITY)

        async def has_room() -> bool:
            return not (await look(redis)).failing

        await until(has_room)
        await say(redis, *words[100:])
        await one.leads()
        await one.is_through()
        check_numbers(await said(redis), words)
        await one.end()


async def test_a_gateway_is_not_ready_and_refuses_until_there_is_room(server: OwnServer, redis: Redis) -> None:
    queue = RedisQueue(redis, "gw-0")
    async with queue.serving(Dispatcher(queue, "gw-0")):
        await fill_disk(server, redis)

        async def says_so() -> bool:
            return queue.not_ready.startswith("redis: MISCONF ") and queue.health.failing == {LOG}

        await until(says_so)
        with pytest.raises(QueueUnavailableError) as caught:
            await queue.submit(PAYLOAD, SUBMIT)
        assert not isinstance(caught.value, QueueFullError)
        assert await redis.exists(streams.payload("r-1")) == 0
        server.limit_files(resource.RLIM_INFINITY)

        async def is_ready() -> bool:
            return queue.not_ready == "" and not queue.health.failing

        await until(is_ready)
        await queue.submit(PAYLOAD, SUBMIT)


async def test_a_node_that_cannot_pull_knows_that_nothing_was_taken(server: OwnServer, redis: Redis) -> None:
    bus = NodeBus(redis, "node-0", "e-1")
    await redis.xadd(streams.group("g"), {FIELD: encode(Enqueued(request_id="a", attempt=0, gateway="gw-0"))})
    await fill_disk(server, redis)
    with pytest.raises(PullRefusedError, match="MISCONF"):
        await bus.pull(Pull("g", 1))
    server.limit_files(resource.RLIM_INFINITY)

    async def is_taken() -> bool:
        try:
            taken: Any = await bus.pull(Pull("g", 1))
        except PullRefusedError:
            return False
        return [entry.enqueued.request_id for entry in taken.entries] == ["a"]

    await until(is_taken)
