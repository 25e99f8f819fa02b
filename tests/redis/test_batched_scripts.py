"""Many runs of scripts go out as few batches, in their order; what becomes of one is its caller's affair alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.inflight.bus import batched_scripts
from gateway.inflight.bus.batched_scripts import BatchedScripts, NotSentError
from shared.bus.bus import connect
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

APPEND = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LLEN', KEYS[1])"
REFUSE_TWO = "if ARGV[1] == '2' then return redis.error_reply('ERR not two') end return ARGV[1]"
LIST = "treadle:test:list"


@pytest.fixture
async def scripts(redis: Redis) -> AsyncIterator[BatchedScripts]:
    batched = BatchedScripts(redis)
    yield batched
    await batched.aclose()


async def said(redis: Redis) -> list[int]:
    return [int(one) for one in await redis.lrange(LIST, 0, -1)]


async def num_calls(redis: Redis, command: str) -> int:
    """How often the server has run it since its statistics were reset."""
    stats: Any = await redis.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_runs_keep_their_order_and_each_has_its_own_answer(redis: Redis, scripts: BatchedScripts) -> None:
    append = scripts.register_script(APPEND)
    answers = await asyncio.gather(*(append(keys=[LIST], args=[number]) for number in range(1000)))
    assert answers == list(range(1, 1001))
    assert await said(redis) == list(range(1000))


async def test_a_crowd_needs_one_connection(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis, connect(own_server.url) as other:
        append = BatchedScripts(redis).register_script(APPEND)
        await asyncio.gather(*(append(keys=[LIST], args=[number]) for number in range(1000)))
        assert (await other.info("clients"))["connected_clients"] == 2, "it, and who asks"


async def test_one_that_is_refused_is_refused_alone(scripts: BatchedScripts) -> None:
    script = scripts.register_script(REFUSE_TWO)
    answers = await asyncio.gather(*(script(keys=[], args=[n]) for n in range(4)), return_exceptions=True)
    assert [type(one) for one in answers] == [bytes, bytes, ResponseError, bytes]
    assert str(answers[2]) == "not two"


async def test_a_server_that_does_not_know_the_scripts_is_told_them_and_nothing_is_done_twice(
    redis: Redis, scripts: BatchedScripts
) -> None:
    append, other = scripts.register_script(APPEND), scripts.register_script(REFUSE_TWO)
    await append(keys=[LIST], args=[0])
    await redis.script_flush()
    await redis.config_resetstat()
    runs = [append(keys=[LIST], args=[1]), other(keys=[], args=[5]), append(keys=[LIST], args=[2])]
    assert await asyncio.gather(*runs) == [2, b"5", 3]
    assert await said(redis) == [0, 1, 2]
    assert await num_calls(redis, "script|load") == 2


async def test_of_a_batch_only_those_that_were_unknown_are_sent_again(redis: Redis, scripts: BatchedScripts) -> None:
    append, other = scripts.register_script(APPEND), scripts.register_script(REFUSE_TWO)
    await redis.script_flush()
    await redis.script_load(APPEND)
    runs = [append(keys=[LIST], args=[1]), other(keys=[], args=[5]), append(keys=[LIST], args=[2])]
    assert await asyncio.gather(*runs) == [1, b"5", 2]
    assert await said(redis) == [1, 2]


async def test_a_lost_connection_leaves_its_batch_in_doubt_and_the_next_one_goes_out(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis, connect(own_server.url) as killer:
        scripts = BatchedScripts(redis)
        append = scripts.register_script(APPEND)
        await append(keys=[LIST], args=[0])
        (own,) = [int(one["id"]) for one in await killer.client_list() if one["cmd"] == "evalsha"]
        await killer.client_pause(60_000, all=False)  # commands of others wait, so the batch is on its way and not done
        runs = [asyncio.create_task(append(keys=[LIST], args=[number])) for number in (1, 2)]

        async def is_held() -> bool:
            found = {int(one["id"]): one for one in await killer.client_list()}
            return "b" in found[own]["flags"]

        await until(is_held)
        await killer.client_kill_filter(_id=str(own))
        await killer.client_unpause()
        ends = await asyncio.gather(*runs, return_exceptions=True)
        assert [isinstance(one, RedisConnectionError | OSError) for one in ends] == [True, True]
        await append(keys=[LIST], args=[3])
        assert (await said(killer))[-1] == 3


async def test_who_leaves_while_it_waits_is_left_out_and_disturbs_nobody(redis: Redis, scripts: BatchedScripts) -> None:
    append = scripts.register_script(APPEND)
    runs = [asyncio.create_task(append(keys=[LIST], args=[number])) for number in range(3)]
    await asyncio.sleep(0)  # they have asked, and nothing has been sent
    runs[1].cancel()
    ends = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(one) for one in ends] == [int, asyncio.CancelledError, int]
    assert await said(redis) == [0, 2]


async def test_who_leaves_while_a_batch_is_on_its_way_does_not_end_it(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis, connect(own_server.url) as other:
        append = BatchedScripts(redis).register_script(APPEND)
        await append(keys=[LIST], args=[0])
        await other.client_pause(60_000, all=False)
        runs = [asyncio.create_task(append(keys=[LIST], args=[number])) for number in (1, 2)]

        async def is_on_its_way() -> bool:
            return any("b" in one["flags"] for one in await other.client_list())

        await until(is_on_its_way)
        runs[0].cancel()
        await other.client_unpause()
        assert await runs[1] == 3
        assert await said(other) == [0, 1, 2]


async def test_no_more_wait_than_a_bound(scripts: BatchedScripts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_scripts, "MAX_WAITING", 2)
    append = scripts.register_script(APPEND)
    ends = await asyncio.gather(*(append(keys=[LIST], args=[n]) for n in range(3)), return_exceptions=True)
    assert [type(one) for one in ends] == [int, int, NotSentError]
    assert await append(keys=[LIST], args=[3]) == 3, "there is room again"


async def test_who_has_waited_too_long_for_a_silent_server_is_refused_unasked(
    redis: Redis, scripts: BatchedScripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_scripts, "MAX_WAIT_S", -1.0)
    with pytest.raises(NotSentError, match="could not be asked"):
        await scripts.register_script(APPEND)(keys=[LIST], args=[1])
    assert await said(redis) == []


async def test_a_batch_is_bounded_in_bytes_beside_its_first_run(
    redis: Redis, scripts: BatchedScripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_scripts, "MAX_BATCH_BYTES", len(LIST) + 1)
    append = scripts.register_script(APPEND)
    assert await asyncio.gather(*(append(keys=[LIST], args=[b"x" * 100]) for _ in range(3))) == [1, 2, 3]


async def test_without_a_server_everybody_hears_of_it(own_server: OwnServer) -> None:
    own_server.kill()
    async with connect(own_server.url) as redis:
        append = BatchedScripts(redis).register_script(APPEND)
        ends = await asyncio.gather(*(append(keys=[LIST], args=[n]) for n in range(3)), return_exceptions=True)
    assert [isinstance(one, RedisConnectionError) for one in ends] == [True, True, True]


async def test_closing_ends_those_who_wait(redis: Redis) -> None:
    scripts = BatchedScripts(redis)
    run = asyncio.create_task(scripts.register_script(APPEND)(keys=[LIST], args=[1]))
    await asyncio.sleep(0)
    await scripts.aclose()
    with pytest.raises(asyncio.CancelledError):
        await run
