"""The gateway's side of Redis: payload and submission together, its token stream, its life."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
import structlog
from redis.asyncio import Redis

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.calls.job import Job
from gateway.inflight.dispatcher import Dispatcher, Inbound
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.openai.answers.delta import Delta, Failure, Rejection
from shared.bus import streams
from shared.bus.bus import MAX_CONNECTIONS, MAX_READ_ENTRIES, connect
from shared.messages.codec import FIELD, decode_entry, decode_payload, encode
from shared.messages.memory.blocks import Locate
from shared.messages.message import Message
from shared.messages.prefixes.prefixes import PromptPrefix
from shared.messages.requests.inventories import GatewayInventory
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import (
    Attempt,
    Cancel,
    Chunk,
    GatewayBeat,
    GatewayGone,
    QueueLine,
    QueuePlace,
    QueueStatus,
    Rejected,
    Resubmit,
    Submit,
    Tokens,
)
from shared.messages.requests.slo import Slo
from shared.service.background.tasks import TaskFailedError
from tests.redis.own_server import OwnServer
from tests.redis.waiting import PATIENCE_S, until
from tests.redis.wire import transactions

TOKENS = streams.tokens("gw-0")
SLO = Slo(name="interactive", deadline_s=20.0)
PAYLOAD = Payload(
    request_id="r-1",
    attempt=0,
    gateway="gw-0",
    model="m",
    prompt_token_ids=[1, 2],
    sampling=Sampling(max_tokens=4),
    due_s=20.0,
)
SUBMIT = Submit(request_id="r-1", gateway="gw-0", model="m", slo=SLO, prompt_tokens=2, max_tokens=4)
NAMED = msgspec.structs.replace(SUBMIT, prefix=PromptPrefix(16, [7, 9]))
JOB = Job(
    request_id="r-1",
    model="m",
    prompt_token_ids=[1, 2],
    sampling=Sampling(max_tokens=4),
    stops=[],
    token_bytes=[b"a", b"b", b"c"],
    slo=SLO,
    tenant="default",
)


@pytest.fixture
def queue(redis: Redis) -> RedisQueue:
    return RedisQueue(redis, "gw-0")


async def test_a_crowd_needs_one_connection_and_each_of_it_is_told(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis, connect(own_server.url) as other:
        queue, number = RedisQueue(redis, "gw-0"), 4 * MAX_CONNECTIONS
        await asyncio.gather(*(queue.submit(PAYLOAD, SUBMIT) for _ in range(number)))
        assert await other.xlen(streams.QUEUE) == number
        assert (await other.info("clients"))["connected_clients"] == 2, "the queue's, and ours"


async def test_a_cancel_stands_behind_its_submit(redis: Redis, queue: RedisQueue) -> None:
    async def ask_and_leave(name: str) -> None:
        again = msgspec.structs.replace(SUBMIT, request_id=name)
        await queue.submit(dataclasses.replace(PAYLOAD, request_id=name), again)
        await queue.cancel(name)

    names = [f"r-{number}" for number in range(50)]
    await asyncio.gather(*map(ask_and_leave, names))
    said = await requests(redis)
    for name in names:
        mine = [type(one) for one in said if isinstance(one, Submit | Cancel) and one.request_id == name]
        assert mine == [Submit, Cancel]


async def messages(redis: Redis, stream: str = streams.QUEUE) -> list[Message]:
    entries: Any = await redis.xrange(stream)
    return [decode_entry(fields) for _, fields in entries]


async def requests(redis: Redis) -> list[Message]:
    """What the queue manager was told of requests, apart from signs of life."""
    return [message for message in await messages(redis) if not isinstance(message, GatewayBeat)]


async def payload(redis: Redis) -> Payload:
    data: Any = await redis.get(streams.payload("r-1"))
    return decode_payload(data)


async def test_a_submission_writes_a_payload_that_expires(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(PAYLOAD, SUBMIT)
    assert await payload(redis) == PAYLOAD
    assert streams.PAYLOAD_TTL_S - 60 < await redis.ttl(streams.payload("r-1")) <= streams.PAYLOAD_TTL_S
    assert await messages(redis) == [SUBMIT]


async def test_payload_and_submission_are_one_transaction(redis: Redis, queue: RedisQueue) -> None:
    seen = await transactions(redis, queue.submit(PAYLOAD, SUBMIT), queue.cancel("r-1"))
    assert seen == [["XADD", "SET"], ["DEL", "DEL", "XADD"]], "of images, too"


async def test_who_has_the_beginning_of_a_prompt_is_asked_in_the_same_transaction(
    redis: Redis, queue: RedisQueue
) -> None:
    seen = await transactions(redis, queue.submit(PAYLOAD, NAMED))
    assert seen == [["XADD", "SET", "XADD"]]
    assert await messages(redis) == [NAMED]
    assert await messages(redis, streams.KV) == [Locate(request_id="r-1", attempt=0, model="m", names=[7, 9])]


async def test_a_further_attempt_is_asked_about_as_well(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(PAYLOAD, msgspec.structs.replace(NAMED, attempt=1))
    assert await messages(redis, streams.KV) == [Locate(request_id="r-1", attempt=1, model="m", names=[7, 9])]


@pytest.mark.parametrize("attempt", [0, 1])
async def test_a_kv_manager_that_cannot_be_asked_is_no_reason_to_refuse(
    redis: Redis, queue: RedisQueue, attempt: int
) -> None:
    await redis.set(streams.KV, "no stream")
    with structlog.testing.capture_logs() as logs:
        await queue.submit(PAYLOAD, msgspec.structs.replace(NAMED, attempt=attempt))
    assert len(await messages(redis)) == 1
    assert [line["event"] for line in logs] == ["the KV manager cannot be asked"]


async def test_cancelling_deletes_the_payload_and_says_so(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(PAYLOAD, SUBMIT)
    await queue.cancel("r-1")
    assert await redis.exists(streams.payload("r-1")) == 0
    assert await messages(redis) == [SUBMIT, Cancel(request_id="r-1")]


async def test_finishing_deletes_the_payload_and_says_nothing(redis: Redis, queue: RedisQueue) -> None:
    await queue.submit(PAYLOAD, SUBMIT)
    await queue.finish("r-1")
    assert await redis.exists(streams.payload("r-1")) == 0
    assert await messages(redis) == [SUBMIT]


async def test_without_redis_every_call_says_that_the_queue_is_unavailable(own_server: OwnServer) -> None:
    own_server.kill()
    async with connect(own_server.url) as redis:
        queue = RedisQueue(redis, "gw-0")
        for call in (queue.submit(PAYLOAD, SUBMIT), queue.cancel("r-1"), queue.finish("r-1")):
            with pytest.raises(QueueUnavailableError):
                await call


async def test_a_life_opens_the_stream_beats_and_says_goodbye(redis: Redis, queue: RedisQueue) -> None:
    assert queue.not_ready

    async def has_beaten() -> bool:
        return GatewayBeat(gateway="gw-0") in await messages(redis)

    async with queue.serving(Dispatcher(queue, "gw-0")):
        assert queue.not_ready == ""
        assert await redis.exists(TOKENS) == 1, "nodes write only to a stream that exists"
        await until(has_beaten)
    assert (await messages(redis))[-1] == GatewayGone(gateway="gw-0")


async def test_tokens_reach_the_request_and_its_end_deletes_the_payload(redis: Redis, queue: RedisQueue) -> None:
    dispatcher = Dispatcher(queue, "gw-0")
    stale = Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [2, 2], finish_reason="length")])
    await redis.xadd(TOKENS, {FIELD: encode(stale)})
    async with queue.serving(dispatcher), dispatcher.run(JOB) as call:
        assert await payload(redis) == PAYLOAD
        fresh = Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [0, 1], finish_reason="stop", is_last=True)])
        await redis.xadd(TOKENS, {FIELD: encode(fresh)})
        assert await call.next_news(PATIENCE_S) == [Delta("ab", 2, "stop")]
    assert await redis.exists(streams.payload("r-1")) == 0
    assert await requests(redis) == [SUBMIT, GatewayGone(gateway="gw-0")]


async def test_a_request_whose_node_was_lost_is_submitted_again(redis: Redis, queue: RedisQueue) -> None:
    dispatcher = Dispatcher(queue, "gw-0")

    async def is_submitted_again() -> bool:
        return len(await requests(redis)) == 2

    async with queue.serving(dispatcher), dispatcher.run(JOB) as call:
        await redis.xadd(TOKENS, {FIELD: encode(Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [0])]))})
        assert await call.next_news(PATIENCE_S) == [Delta("a", 1)]
        await redis.xadd(TOKENS, {FIELD: encode(Resubmit(requests=[Attempt("r-1", 0)]))})
        await until(is_submitted_again)
        again = await payload(redis)
        assert (again.attempt, again.outputs) == (1, [Output([0])])
    assert (await requests(redis))[2:] == [Cancel(request_id="r-1"), GatewayGone(gateway="gw-0")]


async def test_the_queue_manager_s_words_reach_the_view_and_the_request(redis: Redis, queue: RedisQueue) -> None:
    dispatcher = Dispatcher(queue, "gw-0")
    line = QueueLine("m", "interactive", 1, 0, 25.0, 31.0)
    place = QueuePlace("r-1", 4, 25.0, 31.0)
    async with queue.serving(dispatcher), dispatcher.run(JOB) as call:
        await redis.xadd(TOKENS, {FIELD: encode(QueueStatus(lines=[line], places=[place]))})
        assert await call.next_news(PATIENCE_S) == place
        assert dispatcher.view.lines(asyncio.get_running_loop().time()) == [line]
        rejected = Rejected(request_id="r-1", attempt=0, wait_s=25.0, retry_after_s=6.0)
        await redis.xadd(TOKENS, {FIELD: encode(rejected)})
        assert await call.next_news(PATIENCE_S) == Rejection(25.0, 6.0)
    assert await redis.exists(streams.payload("r-1")) == 0
    assert await requests(redis) == [SUBMIT, GatewayGone(gateway="gw-0")], "nobody has to cancel it"


async def test_declared_dead_it_opens_again_and_says_what_it_has(redis: Redis, queue: RedisQueue) -> None:
    dispatcher = Dispatcher(queue, "gw-0")
    inventory = GatewayInventory(gateway="gw-0", number=1, requests=[Attempt("r-1", 0)])

    async def is_said() -> bool:
        return inventory in await messages(redis)

    async with queue.serving(dispatcher), dispatcher.run(JOB) as call:
        await redis.delete(TOKENS)
        await until(is_said)
        said = await messages(redis)
        assert said[said.index(inventory) - 1] == GatewayBeat(gateway="gw-0", inventory=1), "which is its date"
        fresh = Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [0, 1], finish_reason="stop", is_last=True)])
        await redis.xadd(TOKENS, {FIELD: encode(fresh)}, nomkstream=True)
        assert await call.next_news(PATIENCE_S) == [Delta("ab", 2, "stop")]


async def test_behind_entries_that_were_trimmed_before_it_read_them_it_says_what_it_has(
    redis: Redis, queue: RedisQueue
) -> None:
    """Else the client of an answer whose end was among them would wait for ever."""
    dispatcher = Dispatcher(queue, "gw-0")
    inventory = GatewayInventory(gateway="gw-0", number=1, requests=[Attempt("r-1", 0)])

    async def is_said() -> bool:
        return inventory in await messages(redis)

    async with queue.serving(dispatcher), dispatcher.run(JOB):
        end = Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [0, 1], finish_reason="stop", is_last=True)])
        async with redis.pipeline(transaction=True) as pipe:
            pipe.xadd(TOKENS, {FIELD: encode(end)})
            for _ in range(MAX_READ_ENTRIES):
                pipe.xadd(TOKENS, {FIELD: encode(GatewayBeat(gateway="gw-0"))})
            pipe.xtrim(TOKENS, maxlen=MAX_READ_ENTRIES, approximate=False)
            await pipe.execute()
        await until(is_said)
        said = await messages(redis)
        assert said[said.index(inventory) - 1] == GatewayBeat(gateway="gw-0", inventory=1), "which is its date"


class NotingDispatcher(Dispatcher):
    """Keeps what it is given."""

    def __init__(self, queue: RedisQueue) -> None:
        super().__init__(queue, "gw-0")
        self.given: asyncio.Queue[Inbound] = asyncio.Queue()

    async def deliver(self, message: Inbound) -> None:
        self.given.put_nowait(message)


async def test_a_first_token_is_delivered_before_what_was_read_with_it(redis: Redis, queue: RedisQueue) -> None:
    old, older, new = Chunk("old", 0, 5, [0]), Chunk("old", 0, 6, [0]), Chunk("new", 0, 0, [0])
    dispatcher = NotingDispatcher(queue)
    async with queue.serving(dispatcher):
        async with redis.pipeline(transaction=True) as pipe:  # one read brings both
            for chunks in ([old], [older, new]):
                pipe.xadd(TOKENS, {FIELD: encode(Tokens(node="n", chunks=chunks))})
            await pipe.execute()
        given = [await asyncio.wait_for(dispatcher.given.get(), PATIENCE_S) for _ in range(3)]
    assert given == [Tokens(node="n", chunks=[one]) for one in (new, old, older)]


class BrokenDispatcher(Dispatcher):
    """Fails at the first message, as a defect would."""

    async def deliver(self, message: Inbound) -> None:
        raise ZeroDivisionError(f"at {type(message).__name__}")


async def test_a_receiver_that_fails_ends_the_gateway_in_good_order(redis: Redis, queue: RedisQueue) -> None:
    """Its answers fail, its requests are cancelled, it is not ready, it says goodbye, and its process has status 1."""
    dispatcher, stop = BrokenDispatcher(queue, "gw-0"), asyncio.Event()

    async def live() -> None:
        async with queue.serving(dispatcher, stop.set):
            async with dispatcher.run(JOB) as call:
                await redis.xadd(TOKENS, {FIELD: encode(Tokens(node="n", chunks=[Chunk("r-1", 0, 0, [0])]))})
                assert await call.next_news(PATIENCE_S) is Failure.STOPPING
            await asyncio.wait_for(stop.wait(), PATIENCE_S)
            assert queue.not_ready == "receiving tokens has failed: ZeroDivisionError"

    with structlog.testing.capture_logs() as logs, pytest.raises(TaskFailedError, match="receiving tokens has failed"):
        await live()
    assert [str(log["exc_info"]) for log in logs if log["log_level"] == "error"] == ["at Tokens"]
    assert await requests(redis) == [SUBMIT, Cancel(request_id="r-1"), GatewayGone(gateway="gw-0")]
    assert await redis.exists(streams.payload("r-1")) == 0


async def test_it_looks_how_redis_is(queue: RedisQueue) -> None:
    async def has_looked() -> bool:
        return queue.health.used_bytes > 0

    async with queue.serving(Dispatcher(queue, "gw-0")):
        await until(has_looked)
    assert (queue.health.max_bytes, queue.health.failing, queue.health.has_room) == (0, frozenset(), True)


async def test_a_gateway_that_cannot_say_goodbye_ends_all_the_same(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis:
        queue = RedisQueue(redis, "gw-0")
        async with queue.serving(Dispatcher(queue, "gw-0")):
            own_server.kill()
