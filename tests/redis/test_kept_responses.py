"""Answers that are kept, in a real Redis: for how long, how many bytes of them, whose they are."""

from __future__ import annotations

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.inflight.bus.batched_scripts import BatchedScripts
from gateway.inflight.kept_responses import MAX_COUNTED_OUT, MAX_RESPONSE_BYTES, KeptResponse, KeptResponses
from gateway.inflight.queue_port import QueueUnavailableError
from shared.bus import streams
from shared.bus.bus import connect
from tests.redis.own_server import OwnServer

KEEP_S = 600.0


def response(text: str = "hi", tenant: str = "a") -> KeptResponse:
    items = [{"type": "message", "role": "user", "content": text}]
    return KeptResponse(tenant=tenant, num_input=1, items=items, answer=msgspec.Raw(b'{"id":"resp_1"}'))


SIZE = len(msgspec.json.encode(response()))


def kept(redis: Redis, most: int = 1 << 20) -> KeptResponses:
    return KeptResponses(redis, KEEP_S, most)


async def bytes_kept(redis: Redis) -> int:
    """As Redis counts them, which is what lies there."""
    counted = int(await redis.get(streams.RESPONSES_BYTES) or 0)
    there = [await redis.strlen(key) for key in await redis.keys(streams.response("*"))]
    assert counted == sum(there)
    assert await redis.zcard(streams.RESPONSES) == len(there)
    return counted


async def pass_time(redis: Redis, response_id: str) -> None:
    """As if the time of this one were over."""
    await redis.zadd(streams.RESPONSES, {f"{response_id}:{SIZE}": 1}, xx=True)
    await redis.delete(streams.response(response_id))


async def test_an_answer_is_found_by_its_tenant_alone(redis: Redis) -> None:
    scripts = BatchedScripts(redis)
    there = KeptResponses(scripts, KEEP_S, 1 << 20)
    assert await there.keep("resp_1", response())
    assert await there.find("a", "resp_1") == (response(), SIZE)
    assert await there.find("b", "resp_1") is None
    assert await there.find("a", "resp_2") is None
    assert 0 < await redis.pttl(streams.response("resp_1")) <= KEEP_S * 1000
    await scripts.aclose()


async def test_the_oldest_go_where_there_is_no_room(redis: Redis) -> None:
    there = kept(redis, 3 * SIZE)
    for number in range(5):
        assert await there.keep(f"resp_{number}", response())
    found = [number for number in range(5) if await there.find("a", f"resp_{number}")]
    assert found == [2, 3, 4]
    assert await bytes_kept(redis) == 3 * SIZE
    assert await there.keep("resp_5", response("x" * (2 * SIZE)))
    assert [number for number in range(6) if await there.find("a", f"resp_{number}")] == [5]


async def test_what_is_forgotten_leaves_its_room(redis: Redis) -> None:
    there = kept(redis)
    await there.keep("resp_1", response())
    await there.keep("resp_2", response())
    assert await there.forget("resp_1")
    assert not await there.forget("resp_1")
    assert await there.find("a", "resp_1") is None
    assert await bytes_kept(redis) == SIZE


async def test_what_is_over_is_counted_out_a_part_at_a_time(redis: Redis) -> None:
    there = kept(redis)
    for number in range(MAX_COUNTED_OUT + 2):
        await there.keep(f"resp_{number}", response())
    for number in range(MAX_COUNTED_OUT + 2):
        await pass_time(redis, f"resp_{number}")
    await there.keep("resp_new", response())
    assert await redis.zcard(streams.RESPONSES) == 2 + 1
    await there.keep("resp_newer", response())
    assert await bytes_kept(redis) == 2 * SIZE


async def test_what_is_over_makes_room_whatever_there_is_of_it(redis: Redis) -> None:
    num = 2 * MAX_COUNTED_OUT
    there = kept(redis, num * SIZE)
    for number in range(num):
        await there.keep(f"resp_{number}", response())
    for number in range(num):
        await pass_time(redis, f"resp_{number}")
    await there.keep("resp_new", response("x" * (num - 2) * SIZE))
    assert [bool(await there.find("a", name)) for name in ("resp_1", "resp_new")] == [False, True]
    assert int(await redis.get(streams.RESPONSES_BYTES) or 0) <= num * SIZE


async def test_one_that_is_too_long_is_not_kept(redis: Redis) -> None:
    assert not await kept(redis, 8 << 20).keep("resp_1", response("x" * MAX_RESPONSE_BYTES))
    assert await redis.keys("treadle:response*") == []


async def test_where_redis_is_away_nothing_is_kept_and_that_is_told(own_server: OwnServer) -> None:
    redis = connect(own_server.url)
    there = kept(redis)
    assert await there.keep("resp_1", response())
    own_server.kill()
    assert not await there.keep("resp_2", response())
    with pytest.raises(QueueUnavailableError):
        await there.find("a", "resp_1")
    with pytest.raises(QueueUnavailableError):
        await there.forget("resp_1")
    await redis.aclose()
