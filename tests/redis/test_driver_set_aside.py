"""Entries that cannot be handled go to the dead letters, once; the others go on, now and in every later life."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import REGISTRY
from redis.asyncio import Redis

from shared.bus import streams
from shared.bus.bus import connect
from shared.messages.codec import FIELD, encode
from shared.messages.requests.requests import Cancel
from shared.service import driver
from shared.service.driver import Driver
from tests.redis.counting import INBOX, POISON, SERVICE, CountingCore, check_numbers, said, say
from tests.redis.life import life
from tests.redis.waiting import PATIENCE_S, until


async def letters(redis: Redis) -> list[dict[bytes, bytes]]:
    entries: Any = await redis.xrange(streams.DEAD_LETTER)
    return [fields for _, fields in entries]


async def marks(redis: Redis) -> set[bytes]:
    saved: Any = await redis.hkeys(streams.state(SERVICE))
    return {key for key in saved if key.startswith(b"aside:")}


def num_set_aside() -> float:
    return REGISTRY.get_sample_value("treadle_inbox_set_aside_total", {"service": SERVICE}) or 0.0


async def test_an_undecodable_entry_is_kept_as_evidence_and_the_others_go_on(redis: Redis, redis_url: str) -> None:
    before = num_set_aside()
    async with life(redis_url) as one:
        await say(redis, "one")
        bad = await redis.xadd(INBOX, {FIELD: b"\xc1"})
        empty = await redis.xadd(INBOX, {"other": "x"})
        await say(redis, "two")
        await one.is_through()
    check_numbers(await said(redis), ["one", "two"])
    first, second = await letters(redis)
    assert (first[b"stream"], first[b"id"], first[b"m"]) == (INBOX.encode(), bad, b"\xc1")
    assert first[b"reason"].startswith(b"undecodable: ")
    assert (second[b"id"], second[b"reason"]) == (empty, b"undecodable: entry has no field 'm'")
    assert num_set_aside() - before == 2


async def test_of_a_large_entry_the_beginning_is_kept(redis: Redis, redis_url: str) -> None:
    async with life(redis_url) as one:
        await redis.xadd(INBOX, {FIELD: b"\xc1" * 1_000_000})
        await one.is_through()
    (letter,) = await letters(redis)
    assert letter[b"m"] == b"\xc1" * streams.MAX_LETTER_BYTES


async def test_a_core_that_raises_is_rebuilt_without_the_entry(redis: Redis, redis_url: str) -> None:
    before = num_set_aside()
    async with life(redis_url) as one:
        await say(redis, "one", POISON, "two", POISON, "three")
        await one.is_through()
        core = one.driver.core
        assert core is not None
        assert core.describe() == {"num_words": 3}, "the half-changed state is gone"
    check_numbers(await said(redis), ["one", "two", "three"])
    assert [letter[b"reason"] for letter in await letters(redis)] == [b"ValueError: poisoned"] * 2
    assert [letter[b"m"] for letter in await letters(redis)] == [encode(Cancel(request_id=POISON))] * 2
    assert num_set_aside() - before == 2


async def test_what_was_set_aside_stays_aside_until_a_snapshot_covers_it(redis: Redis, redis_url: str) -> None:
    await say(redis, "one", POISON)
    await redis.xadd(INBOX, {FIELD: b"\xc1"})
    await say(redis, "two")
    for _ in range(3):
        async with life(redis_url) as one:
            await one.is_through()
        assert len(await letters(redis)) == 2
        assert len(await marks(redis)) == 2
    async with life(redis_url) as last:
        await last.is_through()
        await last.end()
    assert await marks(redis) == set()
    check_numbers(await said(redis), ["one", "two"])


async def test_marks_do_not_pile_up(redis: Redis, redis_url: str) -> None:
    async with life(redis_url) as one:
        await say(redis, POISON, *["word"] * driver.SNAPSHOT_EVERY_ENTRIES)
        await one.is_through()

        async def are_gone() -> bool:  # the snapshot is written after the commit that makes it due
            return await marks(redis) == set()

        await until(are_gone)
        assert one.driver.core is not None
        assert one.driver.core.describe() == {"num_words": driver.SNAPSHOT_EVERY_ENTRIES}
    assert len(await letters(redis)) == 1


async def test_a_snapshot_keeps_the_marks_of_entries_that_it_does_not_cover(redis: Redis, redis_url: str) -> None:
    """Stopped between the rebuild and the next read: the bad entry is still to come, and known to be bad."""
    await say(redis, "one", POISON, "two")
    stop = asyncio.Event()
    cores: list[CountingCore] = []

    def make_core() -> CountingCore:
        cores.append(CountingCore())
        if len(cores) == 2:
            stop.set()
        return cores[-1]

    stopped = Driver(
        make_core,
        redis,
        service=SERVICE,
        inbox=INBOX,
        instance="one",
        reconnect=lambda: connect(redis_url),
    )
    await asyncio.wait_for(stopped.run(stop), PATIENCE_S)
    assert len(await marks(redis)) == 1
    async with life(redis_url) as one:
        await one.is_through()
    check_numbers(await said(redis), ["one", "two"])
    assert len(await letters(redis)) == 1
