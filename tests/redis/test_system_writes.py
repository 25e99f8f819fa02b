"""What the cluster writes for itself goes out in one step, and one key of another type costs its own write only."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from shared.bus import streams
from shared.bus.system_writes import SystemWriter, WriteFaultError, acknowledge, add, delete, keep
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.message import Message
from shared.messages.requests.requests import Cancel
from tests.redis.wire import transactions

A, B, GROUP = "treadle:test:a", "treadle:test:b", streams.group("g-1")


@pytest.fixture
def writer(redis: Redis) -> SystemWriter:
    return SystemWriter(redis)


def word(text: str) -> Cancel:
    return Cancel(request_id=text)


async def messages(redis: Redis, stream: str) -> list[Message]:
    entries: Any = await redis.xrange(stream)
    return [decode_entry(fields) for _, fields in entries]


async def test_all_is_written_in_one_step(redis: Redis, writer: SystemWriter) -> None:
    await redis.set("treadle:test:old", "x")
    writes = [add(A, word("1")), add(A, encode(word("2"))), delete("treadle:test:old"), keep(B, b"\x00\xff", 60)]
    assert await transactions(redis, writer.write(*writes)) == [["XADD", "XADD", "DEL", "SET"]]
    assert await messages(redis, A) == [word("1"), word("2")]
    assert await redis.exists("treadle:test:old") == 0
    assert (await redis.get(B), await redis.ttl(B)) == (b"\x00\xff", 60)


async def test_a_stream_that_must_exist_is_not_made(redis: Redis, writer: SystemWriter) -> None:
    await redis.xadd(A, {FIELD: encode(word("0"))})
    await writer.write(add(A, word("1"), to_existing=True), add(B, word("1"), to_existing=True))
    assert await messages(redis, A) == [word("0"), word("1")]
    assert await redis.exists(B) == 0


async def test_a_bounded_stream_forgets_its_oldest(redis: Redis, writer: SystemWriter) -> None:
    """Redis forgets whole nodes of its tree, of about a hundred entries: that is all that "about" means."""
    for number in range(500):
        await writer.write(add(A, word(str(number)), 100))
    kept = await messages(redis, A)
    assert 100 <= len(kept) <= 200
    assert kept == [word(str(number)) for number in range(500 - len(kept), 500)]


async def test_an_entry_is_done_with(redis: Redis, writer: SystemWriter) -> None:
    entry_id: Any = await redis.xadd(GROUP, {FIELD: encode(word("1"))})
    await redis.xgroup_create(GROUP, streams.CONSUMER_GROUP, "0")
    await redis.xreadgroup(streams.CONSUMER_GROUP, "e-1", {GROUP: ">"})
    await writer.write(acknowledge(GROUP, entry_id))
    assert await redis.xlen(GROUP) == 0
    pending: Any = await redis.xpending(GROUP, streams.CONSUMER_GROUP)
    assert pending["pending"] == 0


async def test_one_key_of_another_type_is_named_when_the_rest_is_written(redis: Redis, writer: SystemWriter) -> None:
    await redis.set(A, "a string")
    with pytest.raises(WriteFaultError, match=r"^treadle:test:a: WRONGTYPE .*$"):
        await writer.write(add(A, word("1")), add(B, word("2")))
    assert await messages(redis, B) == [word("2")]
    assert await redis.get(A) == b"a string"
