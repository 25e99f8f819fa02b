"""Images of requests in Redis: there as long as their requests, found by whoever takes these, and by nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueFullError
from gpu_node.agent.decisions.actions import Pull
from gpu_node.agent.decisions.intake.entries import EntryFate, fate
from gpu_node.agent.process.node_bus import NodeBus
from shared.bus import streams
from shared.messages.codec import FIELD, decode_payload, encode
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.pictures import Picture
from shared.messages.requests.requests import Enqueued, Submit
from shared.messages.requests.slo import Slo
from tests.redis.waiting import until

SLO = Slo(name="interactive", deadline_s=20.0)
FILE = b"\x89PNG" + bytes(range(256)) * 40
PICTURE = Picture("d1", 48, 40, 36, FILE)
PAYLOAD = Payload("r-1", 0, "gw-0", "m", [1, 0, 2], Sampling(max_tokens=4), pictures=[PICTURE])
KEY = streams.pictures("r-1")


def submit(attempt: int = 0, request_id: str = "r-1") -> Submit:
    return Submit(
        request_id=request_id, gateway="gw-0", model="m", slo=SLO, prompt_tokens=38, max_tokens=4, attempt=attempt
    )


@pytest.fixture
def queue(redis: Redis) -> RedisQueue:
    return RedisQueue(redis, "gw-0", beat_s=0.05)


@pytest.fixture
def bus(redis: Redis) -> NodeBus:
    return NodeBus(redis, "node-0", "epoch-1")


async def enqueue(redis: Redis, attempt: int = 0) -> None:
    """As the queue manager does once it has placed the request."""
    enqueued = Enqueued(request_id="r-1", attempt=attempt, gateway="gw-0")
    await redis.xadd(streams.group("g-1"), {FIELD: encode(enqueued)})


async def pulled(bus: NodeBus) -> Payload | None:
    (entry,) = (await bus.pull(Pull("g-1", 1))).entries
    return entry.payload


async def size_of_streams(redis: Redis) -> int:
    found: Any = await redis.xrange(streams.QUEUE)
    return sum(len(data) for _, fields in found for data in fields.values())


async def test_they_travel_beside_the_payload_and_in_no_stream(redis: Redis, queue: RedisQueue, bus: NodeBus) -> None:
    await queue.submit(PAYLOAD, submit())
    data: Any = await redis.get(streams.payload("r-1"))
    assert len(data) < 400
    assert decode_payload(data) == replace(PAYLOAD, pictures=[replace(PICTURE, content=b"")])
    assert await size_of_streams(redis) < 400
    await enqueue(redis)
    assert await pulled(bus) == PAYLOAD


@pytest.mark.parametrize("how", ["finish", "cancel"])
async def test_they_go_with_their_request(redis: Redis, queue: RedisQueue, how: str) -> None:
    await queue.submit(PAYLOAD, submit())
    assert await redis.exists(KEY) == 1
    await getattr(queue, how)("r-1")
    assert await redis.exists(KEY, streams.payload("r-1")) == 0


async def test_what_a_late_submit_has_written_goes_with_the_second_cancel(redis: Redis, queue: RedisQueue) -> None:
    """Of a submit whose end nobody knows, the cancel is said again when it is surely behind it."""
    await queue.submit(PAYLOAD, submit())
    await queue.cancel("r-1")
    await redis.set(KEY, FILE)
    await queue.cancel("r-1")
    assert await redis.exists(KEY) == 0


async def test_they_are_deleted_again_where_redis_has_lost_that(redis: Redis, queue: RedisQueue) -> None:
    dispatcher = Dispatcher(queue, "gw-0")
    async with queue.serving(dispatcher):
        await queue.submit(PAYLOAD, submit())
        await queue.finish("r-1")
        await redis.set(KEY, FILE)
        await redis.delete(streams.tokens("gw-0"))

        async def is_gone() -> bool:
            return await redis.exists(KEY) == 0

        await until(is_gone)


async def test_should_their_gateway_die_they_expire(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(PAYLOAD, submit())
    assert streams.PAYLOAD_TTL_S - 5 <= await redis.ttl(KEY) <= streams.PAYLOAD_TTL_S


async def test_another_node_finds_them_when_the_first_was_lost(redis: Redis, queue: RedisQueue, bus: NodeBus) -> None:
    await queue.submit(PAYLOAD, submit())
    await enqueue(redis)
    await pulled(bus)
    again = replace(PAYLOAD, attempt=1)
    await queue.submit(again, submit(1))
    await enqueue(redis, 1)
    assert await pulled(NodeBus(redis, "node-1", "epoch-9")) == again
    await queue.finish("r-1")
    assert await redis.exists(KEY) == 0


async def test_should_redis_have_lost_them_the_gateway_brings_them_again(
    redis: Redis, queue: RedisQueue, bus: NodeBus
) -> None:
    """The node gives the request back, as one whose payload is gone; attempts without a token are bounded."""
    await queue.submit(PAYLOAD, submit())
    await redis.delete(KEY)
    await enqueue(redis)
    (entry,) = (await bus.pull(Pull("g-1", 1))).entries
    assert fate(entry, "m", {}) == (EntryFate.LOST, "")
    await queue.submit(replace(PAYLOAD, attempt=1), submit(1))
    await enqueue(redis, 1)
    assert await pulled(bus) == replace(PAYLOAD, attempt=1)


async def test_a_key_of_something_else_is_told_to_the_client(redis: Redis, queue: RedisQueue, bus: NodeBus) -> None:
    await queue.submit(PAYLOAD, submit())
    await redis.set(KEY, b"\x90")
    await enqueue(redis)
    (entry,) = (await bus.pull(Pull("g-1", 1))).entries
    assert fate(entry, "m", {}) == (
        EntryFate.REFUSED,
        "the request is of another version: 0 images where the payload names 1",
    )


async def test_a_full_redis_takes_none_for_a_new_request_and_some_for_an_accepted_one(
    redis: Redis, queue: RedisQueue
) -> None:
    used: Any = await redis.info("memory")
    await redis.config_set("maxmemory", used["used_memory"] // 2)
    try:
        with pytest.raises(QueueFullError):
            await queue.submit(PAYLOAD, submit())
        assert await redis.exists(KEY, streams.payload("r-1"), streams.QUEUE) == 0
        await queue.submit(replace(PAYLOAD, attempt=1), submit(1))
        assert await redis.exists(KEY) == 1
    finally:
        await redis.config_set("maxmemory", 0)


async def test_requests_without_images_have_no_such_key(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(replace(PAYLOAD, pictures=[]), submit())
    assert await redis.keys("treadle:pictures:*") == []
