"""The master goes and a replica takes over: services follow, and nothing is lost that was waited for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.bus.bus import StreamReader, connect
from shared.bus.master import NoMasterError
from shared.config.services.durability import DurabilityOptions
from shared.messages.codec import FIELD, encode
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.background.tasks import cancel_all
from shared.service.log.durability import Waiting
from tests.redis.counting import INBOX, OUT, check_numbers, said, say
from tests.redis.life import Life, life
from tests.redis.replicated import NUM_SENTINELS, Replicated
from tests.redis.waiting import PATIENCE_S, until

PROCESS = "counting"
NUM_BEFORE = 200
NUM_AFTER = 10
WAIT_MS = 100
PAUSE_S = 0.002
FAIL_OVER_S = 15.0  # 0.5 s until the master is missed, a vote, the promotion, and the driver's patience


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Replicated]:
    found = Replicated(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def waiting() -> Waiting:
    return Waiting(DurabilityOptions(replicas=1), PROCESS)


def num_unreplicated() -> float:
    return REGISTRY.get_sample_value("treadle_unreplicated_writes_total", {"process": PROCESS}) or 0.0


async def say_and_wait(redis: Redis, word: str) -> bool:
    """Say one word; whether the replica has it."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.xadd(INBOX, {FIELD: encode(Cancel(request_id=word))})
        pipe.execute_command("WAIT", 1, WAIT_MS)
        _, num_replicas = await pipe.execute()
    return bool(num_replicas)


class Writer:
    """Says one word after the other, whatever happens; no word twice, since nobody knows what became of the first."""

    def __init__(self, redis: Redis) -> None:
        self.acknowledged: list[str] = []
        self.said: list[str] = []
        self._redis = redis

    async def run(self) -> None:
        for number in itertools.count():
            word = f"w{number}"
            self.said.append(word)
            with suppress(RedisError, OSError):
                if await say_and_wait(self._redis, word):
                    self.acknowledged.append(word)
            await asyncio.sleep(PAUSE_S)


def words_of(effects: list[str]) -> list[str]:
    return [word for word in (effect.split(" ", 1)[1] for effect in effects) if word != "tick"]


async def num_answered(one: Life, words: list[str]) -> int:
    """How many of the words have their effect; none while nobody can be asked."""
    try:
        return len(set(words) & set(words_of(await said(one.redis))))
    except RedisError:
        return 0


async def is_answered(one: Life, word: str) -> bool:
    return await num_answered(one, [word]) == 1


async def test_a_fail_over_under_load_loses_nothing_that_was_acknowledged(servers: Replicated) -> None:
    await servers.start(NUM_SENTINELS)
    async with life(servers.sentinel_url, waiting=waiting()) as one, connect(servers.sentinel_url) as redis:
        writer = Writer(redis)
        task = asyncio.create_task(writer.run())
        try:

            async def has_begun() -> bool:
                return len(writer.acknowledged) >= NUM_BEFORE

            await until(has_begun)
            servers.master.kill()
            num_said = len(writer.said)

            async def goes_on() -> bool:
                return await num_answered(one, writer.said[num_said:]) >= NUM_AFTER

            await until(goes_on, FAIL_OVER_S)
        finally:
            await cancel_all([task])
        await one.is_through()
        effects = await said(one.redis)
        words = words_of(effects)
        check_numbers(effects, words)
        there = set(words)
        assert words == [word for word in writer.said if word in there], "in their order, each once"
        assert [word for word in writer.acknowledged if word not in there] == []
        assert await servers.replica.says(role="master")


async def test_what_the_replica_had_not_got_is_gone_and_the_rest_is_whole(servers: Replicated) -> None:
    """Why waiting is worth it: without, an answered write may be lost. What is left is a prefix, and goes on as one."""
    await servers.start(1)
    async with life(servers.sentinel_url, waiting=waiting()) as one:
        there = [f"there{number}" for number in range(10)]
        for word in there:
            assert await say_and_wait(one.redis, word)
        await one.is_through()
        before = num_unreplicated()
        servers.replica.freeze()
        await one.redis.client_kill_filter(_type="replica")
        lost = [f"lost{number}" for number in range(10)]
        for word in lost:
            assert not await say_and_wait(one.redis, word)
        await until(lambda: is_answered(one, lost[-1]))
        assert num_unreplicated() > before
        servers.master.kill()
        servers.replica.thaw()
        async with connect(servers.sentinel_url) as redis:

            async def is_said_again() -> bool:
                try:
                    await say(redis, "again")
                except RedisError:
                    return False
                return True

            await until(is_said_again)
        await until(lambda: is_answered(one, "again"))
        await one.is_through()
        check_numbers(await said(one.redis), [*there, "again"])


async def test_of_a_list_of_servers_the_master_is_followed(servers: Replicated) -> None:
    await servers.start()
    async with life(servers.list_url) as one:
        await say(one.redis, "a", "b")
        await one.is_through()
        await until(servers.is_replicated)
        await servers.promote()

        async def is_said() -> bool:
            try:
                await say(one.redis, "c")
            except NoMasterError:
                return False
            return True

        await until(is_said)
        await until(lambda: is_answered(one, "c"))
        check_numbers(await said(one.redis), ["a", "b", "c"])
        async with servers.replica.client() as new:
            assert await new.xlen(OUT) == 3


async def test_two_masters_are_none(servers: Replicated) -> None:
    servers.master.start()
    servers.replica.start()
    for server in (servers.master, servers.replica):
        await until(lambda server=server: server.says(role="master"))  # type: ignore[misc]
    async with connect(servers.list_url) as redis:
        with pytest.raises(RedisError, match="2 of 2 servers are master"):
            await redis.ping()


async def test_a_replica_alone_is_no_master_to_sentinels_that_are_wrong(servers: Replicated) -> None:
    """A connection is made anew, and says whom it met."""
    await servers.start()
    port = servers.replica.port
    async with connect(f"redis://127.0.0.1:{port},127.0.0.1:1/0") as redis:
        with pytest.raises(RedisError, match=f"0 of 2 servers are master: 127.0.0.1:{port} slave"):
            await redis.ping()


async def test_a_demoted_master_is_left(servers: Replicated) -> None:
    """Behind one name, too: there may be another server behind it with the next connection."""
    await servers.start()
    async with connect(f"redis://127.0.0.1:{servers.master.port}/0") as redis:
        assert await redis.set("treadle:x", 1)
        await servers.promote()
        with pytest.raises(NoMasterError):
            await redis.set("treadle:x", 2)
        async with servers.master.client() as old:
            await old.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        assert await redis.set("treadle:x", 3)


async def test_who_only_reads_leaves_a_demoted_master_with_those_who_write(servers: Replicated) -> None:
    """A replica answers reads, with what it has: here it has lost its master, and would be silent for ever."""
    await servers.start()
    stream = "treadle:tokens:g"
    async with connect(servers.list_url) as redis:
        await redis.xadd(stream, {FIELD: encode(Cancel(request_id="before"))})
        reader = StreamReader(redis, stream)
        await reader.start()
        found = asyncio.create_task(next_message(reader))
        await until(servers.is_replicated)
        await servers.promote()
        async with servers.master.client() as old:
            await old.execute_command("REPLICAOF", "127.0.0.1", 1)  # type: ignore[no-untyped-call]

        async def is_said() -> bool:
            try:
                await redis.xadd(stream, {FIELD: encode(Cancel(request_id="after"))})
            except RedisError:
                return False
            return True

        await until(is_said)
        assert await asyncio.wait_for(found, PATIENCE_S) == Cancel(request_id="after")


async def next_message(reader: StreamReader) -> AnyMessage:
    """As all readers do: again after each failure."""
    while True:
        with suppress(RedisError, OSError):
            for message in await reader.read():
                return message
        await asyncio.sleep(PAUSE_S)
