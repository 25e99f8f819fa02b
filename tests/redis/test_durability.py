"""Waiting for replicas and for the disk: what is reached, what is not, and nobody takes others' writes for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.queue_port import QueueUnavailableError
from shared.bus import streams
from shared.bus.bus import connect
from shared.config.services.durability import DurabilityOptions
from shared.service.log.durability import Confirmations, DurabilityError, DurableScript, Waiting, check_durability
from tests.redis.own_server import OwnServer
from tests.redis.replicated import Replicated
from tests.redis.server_version import needs_waitaof
from tests.redis.test_gateway_queue import PAYLOAD, SUBMIT

COUNT = "return redis.call('INCR', KEYS[1])"
REPLICA = DurabilityOptions(replicas=1, timeout_s=0.5)
TTL_S = 60


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Replicated]:
    found = Replicated(tmp_path)
    try:
        await found.start()
        yield found
    finally:
        found.stop()


async def test_a_script_returns_when_the_replica_has_its_writes(servers: Replicated) -> None:
    async with connect(servers.list_url) as redis, servers.replica.client() as replica:
        count = DurableScript(redis, COUNT, Waiting(REPLICA, "one"))
        for number in range(1, 4):
            assert await count(keys=["treadle:n"], args=[]) == number
            assert await replica.get("treadle:n") == str(number).encode()
        await redis.script_flush()  # as a master that has just taken over
        assert await count(keys=["treadle:n"], args=[]) == 4


async def test_a_script_that_fails_says_so_and_one_that_is_not_replicated_stands(servers: Replicated) -> None:
    async with connect(servers.list_url) as redis:
        servers.replica.freeze()
        count = DurableScript(redis, COUNT, Waiting(REPLICA, "two"))
        assert await count(keys=["treadle:n"], args=[]) == 1
        await redis.set("treadle:text", "x")
        with pytest.raises(ResponseError, match="not an integer"):
            await count(keys=["treadle:text"], args=[])


async def test_many_keys_are_confirmed_with_one_wait_and_those_that_are_gone_are_not(servers: Replicated) -> None:
    async with connect(servers.list_url) as redis:
        confirmations = Confirmations(redis, Waiting(REPLICA, "three"))
        keys = [f"treadle:req:{number}" for number in range(5)]
        for key in keys[:4]:
            await redis.set(key, "x")
        found = await asyncio.gather(*(confirmations.confirm(key, TTL_S) for key in keys))
        assert found == [True, True, True, True, False]
        stats = await redis.info("commandstats")
        assert stats["cmdstat_wait"]["calls"] < len(keys)
        assert await redis.ttl(keys[0]) == TTL_S
        servers.replica.freeze()
        assert await confirmations.confirm(keys[0], TTL_S) is False
        await confirmations.aclose()


@pytest.mark.parametrize("strict", [False, True])
async def test_a_request_that_no_replica_has_is_refused_only_where_that_is_asked_for(
    servers: Replicated, strict: bool
) -> None:
    async with connect(servers.list_url) as redis:
        options = DurabilityOptions(replicas=1, timeout_s=0.5, strict=strict)
        queue = RedisQueue(redis, "g", Waiting(options, "four"))
        await queue.submit(PAYLOAD, SUBMIT)
        servers.replica.freeze()
        if strict:
            with pytest.raises(QueueUnavailableError, match="too few replicas"):
                await queue.submit(PAYLOAD, SUBMIT)
        else:
            await queue.submit(PAYLOAD, SUBMIT)
        assert await redis.xlen(streams.QUEUE) == 2, "what Redis has answered stands"


@needs_waitaof
async def test_the_disk_is_waited_for_where_there_is_one(own_server: OwnServer) -> None:
    fsync = DurabilityOptions(fsync=True)
    async with connect(own_server.url) as redis:
        await check_durability(redis, fsync)
        count = DurableScript(redis, COUNT, Waiting(fsync, "five"))
        assert await count(keys=["treadle:n"], args=[]) == 1
        own_server.kill()
        await own_server.start()
        assert await redis.get("treadle:n") == b"1"
        await redis.config_set("appendonly", "no")
        with pytest.raises(DurabilityError, match="and appendonly yes"):
            await check_durability(redis, fsync)
        await check_durability(redis, DurabilityOptions())
