"""A node takes entries of a group, and the queue manager is told in the same step."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_node.agent.decisions.actions import Pull
from gpu_node.agent.process.node_bus import NodeBus
from shared.bus import streams
from shared.messages.codec import FIELD, decode, decode_entry, encode
from shared.messages.message import Message
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt, Enqueued, Evicted, EvictedRequest, Pulled, Rejected
from tests.contract.other_side import pack

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


def pulled(*request_ids: str, number: int = 1) -> Pulled:
    attempts = [Attempt(name, 1) for name in request_ids]
    return Pulled(node="node-0", epoch="epoch-1", group="g-1", requests=attempts, number=number)


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
    assert await announced(redis) == [pulled("a", "b"), pulled("c", number=2)]
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
    assert await announced(redis) == [pulled("a", number=2)]


# --- entries that nobody meant -------------------------------------------------------------------------------------

NAMELESS = {
    "cut off": encode(enqueued("x"))[:-1],
    "no MessagePack": b"\xc1",
    "nothing": b"",
    "nested too deeply": b"\x91" * 9_000,
    "no map": pack([1, 2]),
    "no request": pack({"type": "enqueued", "attempt": 1, "gateway": "g"}),
    "a request that is a number": pack({"type": "enqueued", "request_id": 7, "attempt": 1, "gateway": "g"}),
    "no attempt": pack({"type": "cancel", "request_id": "x"}),
    "half an attempt": pack({"type": "enqueued", "request_id": "x", "attempt": 0.5, "gateway": "g"}),
    "no attempt at all": pack({"type": "enqueued", "request_id": "x", "attempt": float("nan"), "gateway": "g"}),
    "an attempt without end": pack({"type": "enqueued", "request_id": "x", "attempt": float("inf"), "gateway": "g"}),
    "less than the first attempt": pack({"type": "enqueued", "request_id": "x", "attempt": -1, "gateway": "g"}),
    "a name that is no text": pack({"type": "enqueued", "request_id": b"\xff\xfe", "attempt": 1, "gateway": "g"}),
    "a name of half a character": pack({"type": "enqueued", "request_id": b"\xc3a\xa4", "attempt": 1, "gateway": "g"}),
    "a name with a surrogate": pack({"type": "enqueued", "request_id": b"\xed\xa0\x80", "attempt": 1, "gateway": "g"}),
}
REFUSED = {
    "another message": encode(Rejected(request_id="x", attempt=4, wait_s=1.0, retry_after_s=1.0)),
    "a field of another type": pack({"type": "enqueued", "request_id": "x", "attempt": 4, "gateway": 7}),
    "a field that is missing": pack({"type": "enqueued", "request_id": "x", "attempt": 4}),
    "more behind the message": encode(Enqueued(request_id="x", attempt=4, gateway="gw-0")) + b"\x00",
    "no type": pack({"request_id": "x", "attempt": 4}),
}


async def letters(redis: Redis) -> list[dict[bytes, bytes]]:
    entries: Any = await redis.xrange(streams.DEAD_LETTER)
    return [fields for _, fields in entries]


@pytest.mark.parametrize("data", NAMELESS.values(), ids=NAMELESS)
async def test_an_entry_that_names_no_attempt_is_a_dead_letter_and_the_others_come(
    redis: Redis, bus: NodeBus, data: bytes
) -> None:
    await enqueue(redis, "a")
    bad: Any = await redis.xadd(GROUP, {FIELD: data})
    await enqueue(redis, "b")
    taken = await bus.pull(Pull("g-1", 2))
    assert [entry.enqueued.request_id for entry in taken.entries] == ["a", "b"]
    assert await announced(redis) == [pulled("a", "b")]
    (letter,) = await letters(redis)
    assert (letter[b"stream"], letter[b"id"], letter[b"m"]) == (GROUP.encode(), bad, data[: streams.MAX_LETTER_BYTES])
    assert letter[b"reason"].startswith(b"undecodable: ")
    assert await num_pending(redis) == 2
    assert await redis.xlen(GROUP) == 2


async def test_an_entry_without_the_field_of_messages_is_a_dead_letter(redis: Redis, bus: NodeBus) -> None:
    await redis.xadd(GROUP, {"other": "field"})
    taken = await bus.pull(Pull("g-1", 1))
    assert (taken.num_asked, taken.entries, await announced(redis)) == (1, [], [])
    assert len(await letters(redis)) == 1


async def test_a_field_before_the_message_is_passed_over(redis: Redis, bus: NodeBus) -> None:
    await redis.xadd(GROUP, {"note": "from another version", FIELD: encode(enqueued("a"))})
    taken = await bus.pull(Pull("g-1", 1))
    assert [entry.enqueued for entry in taken.entries] == [enqueued("a")]


@pytest.mark.parametrize(
    "request_id", ["ä", "߿", "ࠀ", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U000fffff", "\U0010ffff"]
)
async def test_a_name_may_be_any_text(redis: Redis, bus: NodeBus, request_id: str) -> None:
    await enqueue(redis, request_id)
    await bus.pull(Pull("g-1", 1))
    assert await announced(redis) == [pulled(request_id)]
    assert await letters(redis) == []


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
async def test_an_entry_that_names_an_attempt_but_is_none_is_given_back(
    redis: Redis, bus: NodeBus, data: bytes
) -> None:
    """The queue manager has heard that the node has it: another attempt has another entry."""
    bad: Any = await redis.xadd(GROUP, {FIELD: data})
    await enqueue(redis, "a", "b")
    taken = await bus.pull(Pull("g-1", 2))
    assert [entry.enqueued.request_id for entry in taken.entries] == ["a"]
    assert taken.num_asked == 1, "fewer would mean that the group is empty"
    back = EvictedRequest("x", 4, output_tokens=0, kv_tokens=0, kv_at="node-0")
    both = Pulled(node="node-0", epoch="epoch-1", group="g-1", requests=[Attempt("x", 4), Attempt("a", 1)], number=1)
    assert await announced(redis) == [both, Evicted(node="node-0", epoch="epoch-1", requests=[back], number=2)]
    (letter,) = await letters(redis)
    assert (letter[b"stream"], letter[b"id"], letter[b"m"]) == (GROUP.encode(), bad, data)
    assert await num_pending(redis) == 1
    left: Any = await redis.xrange(GROUP)
    assert [decode(fields[FIELD]) for _, fields in left] == [enqueued("a"), enqueued("b")]


async def test_a_payload_that_is_no_string_is_none(redis: Redis, bus: NodeBus) -> None:
    await enqueue(redis, "a")
    await redis.delete(streams.payload("a"))
    await redis.rpush(streams.payload("a"), "a list")
    taken = await bus.pull(Pull("g-1", 1))
    assert [entry.payload for entry in taken.entries] == [None]
    assert await announced(redis) == [pulled("a")]
