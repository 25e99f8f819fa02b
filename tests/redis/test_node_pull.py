"""A node takes entries of a group, and the queue manager is told in the same step."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_node.agent.actions import Pull
from gpu_node.agent.node_bus import NodeBus
from shared import streams
from shared.codec import FIELD, decode_entry, encode
from shared.message import Message
from shared.payload import Payload, Sampling
from shared.requests import Attempt, Enqueued, Pulled

pytestmark = pytest.mark.redis

GROUP = streams.group("g-1")


@pytest.fixture
def bus(redis: Redis) -> NodeBus:
    return NodeBus(redis, "node-0", "epoch-1")


def enqueued(request_id: str) -> Enqueued:
    return Enqueued(request_id=request_id, attempt=1, gateway="gw-0")


def payload(request_id: str) -> Payload:
    return Payload(
        request_id=request_id,
        attempt=1,
        gateway="gw-0",
        model="m",
        prompt_token_ids=[1, 2],
        sampling=Sampling(max_tokens=3),
    )


async def enqueue(redis: Redis, *request_ids: str) -> None:
    for request_id in request_ids:
        await redis.xadd(GROUP, {FIELD: encode(enqueued(request_id))})
        await redis.set(streams.payload(request_id), encode(payload(request_id)))


async def announced(redis: Redis) -> list[Message]:
    entries: Any = await redis.xrange(streams.QUEUE)
    return [decode_entry(fields) for _, fields in entries]


async def num_pending(redis: Redis) -> int:
    groups: Any = await redis.xinfo_groups(GROUP)
    return sum(group["pending"] for group in groups)


def pulled(*request_ids: str) -> Pulled:
    return Pulled(node="node-0", epoch="epoch-1", group="g-1", requests=[Attempt(name, 1) for name in request_ids])


async def test_entries_come_in_order_with_their_payloads_and_not_more_than_asked(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a", "b", "c")
    first = await bus.pull(Pull("g-1", 2))
    second = await bus.pull(Pull("g-1", 2))
    assert (first.group, first.num_asked) == ("g-1", 2)
    assert [(entry.enqueued, entry.payload) for entry in first.entries] == [
        (enqueued("a"), payload("a")),
        (enqueued("b"), payload("b")),
    ]
    assert [entry.payload for entry in second.entries] == [payload("c")]
    assert await announced(redis) == [pulled("a", "b"), pulled("c")]
    assert await num_pending(redis) == 3


async def test_two_nodes_share_a_group_and_take_nothing_twice(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a", "b", "c")
    other = NodeBus(redis, "node-1", "epoch-9")
    taken = [await one.pull(Pull("g-1", 1)) for one in (bus, other, bus, other)]
    assert [[entry.enqueued.request_id for entry in part.entries] for part in taken] == [["a"], ["b"], ["c"], []]
    consumers: Any = await redis.xinfo_consumers(GROUP, streams.CONSUMER_GROUP)
    assert {consumer["name"]: consumer["pending"] for consumer in consumers} == {b"epoch-1": 2, b"epoch-9": 1}


async def test_entries_from_before_the_first_pull_are_seen(redis: Redis, bus: NodeBus) -> None:
    """A consumer group made with id `$` would never see them."""
    await enqueue(redis, "early")
    taken = await bus.pull(Pull("g-1", 1))
    assert [entry.enqueued.request_id for entry in taken.entries] == ["early"]


async def test_a_payload_that_is_gone_or_unreadable_is_none(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "gone", "bad", "good")
    await redis.delete(streams.payload("gone"))
    await redis.set(streams.payload("bad"), b"\xc1")
    taken = await bus.pull(Pull("g-1", 3))
    assert [entry.payload for entry in taken.entries] == [None, None, payload("good")]
    assert await announced(redis) == [pulled("gone", "bad", "good")]
    buried: Any = await redis.xrange(streams.DEAD_LETTER)
    assert [(letter[b"stream"], letter[b"m"]) for _, letter in buried] == [(b"treadle:req:bad", b"\xc1")]


async def test_a_group_without_news_gives_nothing_and_says_nothing(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a")
    await bus.pull(Pull("g-1", 1))
    assert (await bus.pull(Pull("g-1", 1))).entries == []
    assert await announced(redis) == [pulled("a")]


async def test_a_group_that_is_gone_gives_nothing_and_does_not_come_back(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a")
    await redis.delete(GROUP)
    assert (await bus.pull(Pull("g-1", 1))).entries == []
    assert await redis.exists(GROUP, streams.QUEUE) == 0


async def test_what_cannot_be_announced_is_not_taken(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a")
    await redis.set(streams.QUEUE, "a string")
    with pytest.raises(ResponseError, match="treadle:queue is a string, not a stream"):
        await bus.pull(Pull("g-1", 1))
    await redis.delete(streams.QUEUE)
    taken = await bus.pull(Pull("g-1", 1))
    assert [entry.enqueued.request_id for entry in taken.entries] == ["a"]
    assert await announced(redis) == [pulled("a")]
