"""At ``maxmemory`` Redis takes what leads the cluster and what frees memory; only new requests are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueFullError
from gpu_node.agent.decisions.actions import Ack, Publish, Pull
from gpu_node.agent.process.node_bus import NodeBus
from shared.bus import streams
from shared.bus.bus import StreamReader, connect
from shared.bus.redis_health import ADMITTED_SHARE, look
from shared.messages.codec import FIELD, decode_entry, decode_payload, encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeGone
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import (
    Attempt,
    Cancel,
    Chunk,
    Enqueued,
    Finished,
    FinishedRequest,
    GatewayBeat,
    GatewayGone,
    Pulled,
    Submit,
    Tokens,
)
from shared.messages.requests.slo import Slo
from tests.contract.examples import HEARTBEAT
from tests.redis.counting import INBOX, POISON, check_numbers, said, say
from tests.redis.life import life
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

MAX_MEMORY = 8 << 20
BALLAST = "ballast:"
NUM_PROMPT = 40_000  # tokens, of up to 3 bytes each: a hundred such payloads are more than Redis has here


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[OwnServer]:
    """A Redis of 8 MiB."""
    server = OwnServer(tmp_path, "--maxmemory", str(MAX_MEMORY), "--maxmemory-policy", "noeviction")
    try:
        await server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
async def redis(small: OwnServer) -> AsyncIterator[Redis]:
    async with connect(small.url) as client:
        yield client


async def fill(redis: Redis) -> None:
    """Until Redis takes nothing more that asks for memory, however little."""
    for size in (100_000, 1_000, 10):
        number = 0
        try:
            while True:
                await redis.set(f"{BALLAST}{size}:{number}", "x" * size)
                number += 1
        except OutOfMemoryError:
            continue


async def used_bytes(redis: Redis) -> int:
    return (await look(redis)).used_bytes


async def messages(redis: Redis, stream: str) -> list[Message]:
    entries: Any = await redis.xrange(stream)
    return [decode_entry(fields) for _, fields in entries]


def payload(request_id: str, attempt: int = 0) -> Payload:
    return Payload(
        request_id=request_id,
        attempt=attempt,
        gateway="gw-0",
        model="m",
        prompt_token_ids=[40_000] * NUM_PROMPT,
        sampling=Sampling(max_tokens=4),
    )


def submit(request_id: str, attempt: int = 0) -> Submit:
    slo = Slo(name="interactive", deadline_s=20.0)
    return Submit(
        request_id=request_id,
        gateway="gw-0",
        model="m",
        slo=slo,
        prompt_tokens=NUM_PROMPT,
        max_tokens=4,
        attempt=attempt,
    )


async def submit_until_full(redis: Redis, queue: RedisQueue) -> list[str]:
    """Requests that were accepted before the first that was not."""
    accepted: list[str] = []
    for number in range(MAX_MEMORY // NUM_PROMPT):
        try:
            await queue.submit(payload(f"r-{number}"), submit(f"r-{number}"))
        except QueueFullError:
            assert await redis.exists(streams.payload(f"r-{number}")) == 0, "both or neither"
            return accepted
        accepted.append(f"r-{number}")
    raise AssertionError("Redis never was full")


# --- services -------------------------------------------------------------------------------------------------------


async def test_a_service_leads_commits_sets_aside_snapshots_and_trims(small: OwnServer, redis: Redis) -> None:
    words = [f"w{number}" for number in range(2_000)]
    await say(redis, *words[:1_000], POISON, *words[1_000:])
    await fill(redis)
    async with life(small.url) as killed:
        await killed.leads()  # and has begun: whoever comes next has something to replay
    async with life(small.url) as one:
        await one.is_through()
        check_numbers(await said(redis), words)
        assert await redis.xlen(streams.DEAD_LETTER) == 1
        await one.end()
    assert await redis.xlen(INBOX) <= 1, "trimmed up to the snapshot"
    async with life(small.url, instance="another") as other:
        await other.leads()  # at once: the lease was given back
    with pytest.raises(OutOfMemoryError):
        await redis.set("one", "more")


# --- gateways -------------------------------------------------------------------------------------------------------


async def test_a_new_request_is_refused_and_those_that_end_make_room(redis: Redis) -> None:
    queue = RedisQueue(redis, "gw-0")
    empty_bytes = await used_bytes(redis)
    accepted = await submit_until_full(redis, queue)
    assert not (await look(redis)).has_room
    await fill(redis)
    for request_id in accepted[::2]:
        await queue.cancel(request_id)
    for request_id in accepted[1::2]:
        await queue.finish(request_id)
    assert [key async for key in redis.scan_iter(streams.payload("*"))] == []
    told = [submit(request_id) for request_id in accepted], [Cancel(request_id=one) for one in accepted[::2]]
    assert await messages(redis, streams.QUEUE) == [*told[0], *told[1]]
    for key in [key async for key in redis.scan_iter(f"{BALLAST}*")]:
        await redis.delete(key)

    async def is_free() -> bool:
        return await used_bytes(redis) < empty_bytes + MAX_MEMORY // 20  # tables and buffers of connections stay

    await until(is_free)  # a connection's buffer shrinks when nothing has come over it for a while
    assert (await look(redis)).has_room
    await queue.submit(payload("new"), submit("new"))


async def test_a_further_attempt_goes_through(redis: Redis) -> None:
    queue = RedisQueue(redis, "gw-0")
    await queue.submit(payload("r-0"), submit("r-0"))
    await fill(redis)
    await queue.submit(payload("r-0", attempt=1), submit("r-0", attempt=1))
    data: Any = await redis.get(streams.payload("r-0"))
    assert decode_payload(data) == payload("r-0", attempt=1)
    assert streams.PAYLOAD_TTL_S - 60 < await redis.ttl(streams.payload("r-0")) <= streams.PAYLOAD_TTL_S
    assert await messages(redis, streams.QUEUE) == [submit("r-0"), submit("r-0", attempt=1)]


async def test_a_gateway_opens_its_stream_lives_and_says_goodbye(redis: Redis) -> None:
    await fill(redis)
    queue = RedisQueue(redis, "gw-0")

    async def has_looked() -> bool:
        return queue.health.max_bytes == MAX_MEMORY

    async with queue.serving(Dispatcher(queue, "gw-0")):
        assert queue.not_ready == ""
        await until(has_looked)
        assert queue.health.used_bytes > ADMITTED_SHARE * MAX_MEMORY
        assert not queue.health.has_room
        await redis.delete(*[key async for key in redis.scan_iter(f"{BALLAST}100000:*")])

        async def has_room() -> bool:
            return queue.health.has_room

        await until(has_room)
    said_by_it = await messages(redis, streams.QUEUE)
    assert (said_by_it[0], said_by_it[-1]) == (GatewayBeat(gateway="gw-0"), GatewayGone(gateway="gw-0"))


# --- nodes ----------------------------------------------------------------------------------------------------------


async def test_a_node_pulls_publishes_beats_and_says_goodbye(redis: Redis) -> None:
    bus = NodeBus(redis, "node-0", "e-1")
    await redis.xadd(streams.tokens("gw-0"), {FIELD: encode(GatewayBeat(gateway="gw-0"))})
    await redis.set(streams.payload("a"), encode(payload("a")))
    await redis.xadd(streams.group("g"), {FIELD: encode(Enqueued(request_id="a", attempt=0, gateway="gw-0"))})
    await redis.xadd(streams.group("g"), {FIELD: b"\xc1"})
    await fill(redis)
    (entry,) = (await bus.pull(Pull("g", 2))).entries
    assert entry.payload == payload("a")
    tokens = Tokens(node="node-0", chunks=[Chunk("a", 0, 0, [1], "stop", is_last=True)])
    done = FinishedRequest("a", 0, "stop", 1)
    await bus.publish(Publish(tokens={"gw-0": tokens}, acks=[Ack("g", entry.entry_id)], finished=[done]), 1)
    assert (await messages(redis, streams.tokens("gw-0")))[1:] == [tokens]
    assert await messages(redis, streams.QUEUE) == [
        Pulled(node="node-0", epoch="e-1", group="g", requests=[Attempt("a", 0)], number=1),
        Finished(node="node-0", epoch="e-1", requests=[done]),
    ]
    assert (await redis.xlen(streams.group("g")), await redis.xlen(streams.DEAD_LETTER)) == (0, 1)
    await bus.beat(HEARTBEAT)
    await bus.say_goodbye()
    for stream in (streams.SCHEDULER, streams.KV):
        assert await messages(redis, stream) == [HEARTBEAT, NodeGone(node="node-0", epoch="e-1")]


async def test_what_cannot_be_read_is_buried_and_the_reader_goes_on(redis: Redis) -> None:
    stream = streams.node_inbox("node-0")
    reader = StreamReader(redis, stream)
    await reader.start()
    await redis.xadd(stream, {FIELD: b"\xc1" * 100_000})
    await redis.xadd(stream, {FIELD: encode(Cancel(request_id="a"))})
    await fill(redis)
    assert await reader.read() == [Cancel(request_id="a")]
    letters: Any = await redis.xrange(streams.DEAD_LETTER)
    assert [len(fields[FIELD]) for _, fields in letters] == [streams.MAX_LETTER_BYTES], "where it begins, as evidence"
