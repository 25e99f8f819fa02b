"""The outcome of a step goes out in one transaction, and saying it twice does no harm."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_node.agent.decisions.actions import Ack, Publish, Pull
from gpu_node.agent.process.node_bus import NodeBus
from shared.bus import streams
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeGone
from shared.messages.requests.requests import (
    HANDED_OVER,
    Chunk,
    Enqueued,
    Evicted,
    EvictedRequest,
    Finished,
    FinishedRequest,
    GatewayBeat,
    Tokens,
)
from tests.contract.examples import HEARTBEAT
from tests.redis.wire import transactions

GROUP = streams.group("g-1")
DONE = FinishedRequest("a", 0, "stop", 2)
TAKEN_OUT = EvictedRequest("a", 0, output_tokens=2, kv_tokens=9, kv_at=HANDED_OVER)


@pytest.fixture
def bus(redis: Redis) -> NodeBus:
    return NodeBus(redis, "node-0", "epoch-1")


async def messages(redis: Redis, stream: str) -> list[Message]:
    entries: Any = await redis.xrange(stream)
    return [decode_entry(fields) for _, fields in entries]


async def open_gateway(redis: Redis, gateway: str) -> None:
    await redis.xadd(streams.tokens(gateway), {FIELD: encode(GatewayBeat(gateway=gateway))})


async def taken(redis: Redis, bus: NodeBus, *request_ids: str) -> list[Ack]:
    for request_id in request_ids:
        await redis.xadd(GROUP, {FIELD: encode(Enqueued(request_id=request_id, attempt=0, gateway="gw-0"))})
    entries = (await bus.pull(Pull("g-1", len(request_ids)))).entries
    await redis.delete(streams.QUEUE)  # the announcement is not what is looked at here
    return [Ack("g-1", entry.entry_id) for entry in entries]


def tokens(*token_ids: int) -> Tokens:
    return Tokens(node="node-0", chunks=[Chunk("a", 0, 0, list(token_ids))])


async def test_tokens_go_to_each_gateway_that_exists_and_revive_none(redis: Redis, bus: NodeBus) -> None:
    await open_gateway(redis, "gw-0")
    await open_gateway(redis, "gw-1")
    await bus.publish(Publish(tokens={"gw-0": tokens(1), "gone": tokens(2), "gw-1": tokens(3)}), 1)
    assert (await messages(redis, streams.tokens("gw-0")))[1:] == [tokens(1)]
    assert (await messages(redis, streams.tokens("gw-1")))[1:] == [tokens(3)]
    assert await redis.exists(streams.tokens("gone"), streams.QUEUE) == 0


async def test_an_acknowledged_entry_leaves_the_group_and_its_pending_list(redis: Redis, bus: NodeBus) -> None:
    first, second = await taken(redis, bus, "a", "b")
    await bus.publish(Publish(acks=[first]), 1)
    left: Any = await redis.xrange(GROUP)
    assert [entry_id for entry_id, _ in left] == [second.entry_id]
    pending: Any = await redis.xpending_range(GROUP, streams.CONSUMER_GROUP, "-", "+", 10)
    assert [entry["message_id"] for entry in pending] == [second.entry_id]


async def test_what_finished_reaches_the_queue_manager(redis: Redis, bus: NodeBus) -> None:
    await bus.publish(Publish(finished=[DONE]), 1)
    assert await messages(redis, streams.QUEUE) == [Finished(node="node-0", epoch="epoch-1", requests=[DONE])]


async def test_all_of_a_step_is_one_transaction(redis: Redis, bus: NodeBus) -> None:
    await open_gateway(redis, "gw-0")
    acks = await taken(redis, bus, "a")
    step = Publish(tokens={"gw-0": tokens(1)}, acks=acks, finished=[DONE])
    assert await transactions(redis, bus.publish(step, 1)) == [["XADD", "XACK", "XDEL", "XADD"]]


async def test_what_was_evicted_reaches_the_queue_manager_with_its_acknowledgement(redis: Redis, bus: NodeBus) -> None:
    acks = await taken(redis, bus, "a")
    publish = Publish(acks=acks, evicted=[TAKEN_OUT])
    assert await transactions(redis, bus.publish(publish, 7)) == [["XACK", "XDEL", "XADD"]]
    assert await messages(redis, streams.QUEUE) == [
        Evicted(node="node-0", epoch="epoch-1", requests=[TAKEN_OUT], number=7)
    ]


async def test_publishing_again_changes_nothing_that_counts(redis: Redis, bus: NodeBus) -> None:
    """After a lost answer the agent repeats: receivers know what they have had."""
    await open_gateway(redis, "gw-0")
    first, second = await taken(redis, bus, "a", "b")
    step = Publish(tokens={"gw-0": tokens(1)}, acks=[first], finished=[DONE])
    await bus.publish(step, 1)
    await bus.publish(step, 1)
    left: Any = await redis.xrange(GROUP)
    assert [entry_id for entry_id, _ in left] == [second.entry_id]
    assert (await messages(redis, streams.tokens("gw-0")))[1:] == [tokens(1)] * 2, "the same index: dropped by it"
    assert await messages(redis, streams.QUEUE) == [Finished(node="node-0", epoch="epoch-1", requests=[DONE])] * 2


async def test_acknowledging_in_a_group_that_is_gone_does_not_bring_it_back(redis: Redis, bus: NodeBus) -> None:
    acks = await taken(redis, bus, "a")
    await redis.delete(GROUP)
    await bus.publish(Publish(acks=acks, finished=[DONE]), 1)
    assert await redis.exists(GROUP) == 0
    assert len(await messages(redis, streams.QUEUE)) == 1


async def test_signs_of_life_and_the_goodbye_go_to_scheduler_and_kv_manager(redis: Redis, bus: NodeBus) -> None:
    await bus.beat(HEARTBEAT)
    await bus.say_goodbye()
    for stream in (streams.SCHEDULER, streams.KV):
        assert await messages(redis, stream) == [HEARTBEAT, NodeGone(node="node-0", epoch="epoch-1")]
