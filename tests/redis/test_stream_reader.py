"""Readers whose past does not matter: from now on, in order, and past what cannot be read."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from shared.bus import streams
from shared.bus.bus import MAX_READ_ENTRIES, READ_BLOCK_MS, StreamReader
from shared.messages.codec import FIELD, encode
from shared.messages.requests.requests import Cancel
from tests.redis.counting import INBOX, say

AT_ONCE_MS = 1


async def reader(redis: Redis) -> StreamReader:
    reader = StreamReader(redis, INBOX)
    await reader.start()
    return reader


def words(messages: list[Any]) -> list[str]:
    assert all(isinstance(message, Cancel) for message in messages)
    return [message.request_id for message in messages]


async def test_it_starts_behind_what_is_there(redis: Redis) -> None:
    await say(redis, "old", "older")
    new = await reader(redis)
    assert await new.read(AT_ONCE_MS) == []
    await say(redis, "new", "newer")
    assert words(await new.read()) == ["new", "newer"]
    assert await new.read(AT_ONCE_MS) == []


async def test_of_a_stream_that_does_not_exist_yet_it_misses_nothing(redis: Redis) -> None:
    new = await reader(redis)
    assert await new.read(AT_ONCE_MS) == []
    await say(redis, "first")
    assert words(await new.read()) == ["first"]


async def test_nothing_is_missed_between_two_reads_however_much_comes(redis: Redis) -> None:
    new = await reader(redis)
    expected = [str(number) for number in range(2 * MAX_READ_ENTRIES + 1)]
    await say(redis, *expected)
    reads = [words(await new.read(AT_ONCE_MS)) for _ in range(4)]
    assert [len(read) for read in reads] == [MAX_READ_ENTRIES, MAX_READ_ENTRIES, 1, 0]
    assert [word for read in reads for word in read] == expected


async def test_entries_that_were_trimmed_before_they_were_read_are_noticed(redis: Redis) -> None:
    new = await reader(redis)
    await say(redis, "read")
    assert words(await new.read()) == ["read"]
    await say(redis, *(str(number) for number in range(2 * MAX_READ_ENTRIES + 1)))
    await redis.xtrim(INBOX, maxlen=2 * MAX_READ_ENTRIES, approximate=False)
    assert words(await new.read())[0] == "1", "0 is gone, as what was read is"
    assert new.num_lacks == 1
    assert words(await new.read())[-1] == str(2 * MAX_READ_ENTRIES)
    assert new.num_lacks == 1


async def test_what_is_trimmed_when_it_has_been_read_is_not_missed(redis: Redis) -> None:
    new = await reader(redis)
    for _ in range(2):
        await say(redis, *(str(number) for number in range(2 * MAX_READ_ENTRIES)))
        for _ in range(2):
            assert len(await new.read()) == MAX_READ_ENTRIES
            await redis.xtrim(INBOX, minid=new.last_id, approximate=False)
    assert new.num_lacks == 0


async def test_a_bad_entry_is_buried_and_the_others_are_read(redis: Redis) -> None:
    new = await reader(redis)
    await say(redis, "one")
    bad = await redis.xadd(INBOX, {FIELD: b"\xc1", "other": "kept"})
    await say(redis, "two")
    assert words(await new.read(READ_BLOCK_MS)) == ["one", "two"]
    buried: Any = await redis.xrange(streams.DEAD_LETTER)
    [(_, letter)] = buried
    assert letter.pop(b"reason")
    assert letter == {FIELD: b"\xc1", b"other": b"kept", b"stream": INBOX.encode(), b"id": bad}


async def lose_end(redis: Redis, number: int) -> None:
    """The stream is as it was before the last entries came: gone, and written again under the old ids."""
    entries: Any = await redis.xrange(INBOX)
    await redis.delete(INBOX)
    for entry_id, fields in entries[:-number]:
        await redis.xadd(INBOX, fields, id=entry_id)


async def test_put_back_it_reads_what_comes_behind_a_loss_though_its_ids_lie_before(redis: Redis) -> None:
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="old"))}, id="1-0")
    new = await reader(redis)
    for entry_id, word in (("5-0", "kept"), ("8-0", "lost"), ("9-0", "lost")):
        await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id=word))}, id=entry_id)
    assert words(await new.read()) == ["kept", "lost", "lost"]
    await lose_end(redis, 2)
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="new"))}, id="7-0")
    assert await new.read(AT_ONCE_MS) == [], "it lies before what was read"
    await new.put_back()
    assert words(await new.read(AT_ONCE_MS)) == ["new"]
    await new.put_back()
    assert await new.read(AT_ONCE_MS) == [], "nothing is read twice"


async def test_put_back_to_before_where_it_began(redis: Redis) -> None:
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="old"))}, id="1-0")
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="lost"))}, id="9-0")
    new = await reader(redis)
    await lose_end(redis, 1)
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="new"))}, id="2-0")
    await new.put_back()
    assert words(await new.read(AT_ONCE_MS)) == ["new"]


async def test_trimming_forgets_what_was_read_and_keeps_the_rest(redis: Redis) -> None:
    new = await reader(redis)
    await say(redis, *["read"] * MAX_READ_ENTRIES, "unread")
    await new.read()
    await new.trim()
    assert await redis.xlen(INBOX) < MAX_READ_ENTRIES / 2, "about: Redis trims whole nodes of its tree"
    assert words(await new.read()) == ["unread"]
