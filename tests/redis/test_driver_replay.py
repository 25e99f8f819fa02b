"""A recorded log replayed gives the same effects and the same state, from zero and from a snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from shared.bus import streams
from shared.messages.requests.requests import Cancel
from shared.service import driver
from shared.service.core import Send
from shared.service.driver import SnapshotError
from shared.service.log.cluster_clock import id_order
from tests.redis.counting import INBOX, OUT, SERVICE, CountingCore, check_numbers, fold, said, say
from tests.redis.life import life

WORDS = [f"w{number}" for number in range(200)]


async def test_a_recorded_log_gives_the_same_effects(redis: Redis, redis_url: str) -> None:
    for piece in (WORDS[:50], WORDS[50:]):
        async with life(redis_url) as one:
            await say(redis, *piece)
            await one.is_through()
    log: Any = await redis.xrange(INBOX)
    replayed = [effect for effect in fold(CountingCore(), log) if isinstance(effect, Send) and effect.stream == OUT]
    assert [effect.message for effect in replayed] == [Cancel(request_id=word) for word in await said(redis)]
    assert len(replayed) > len(WORDS), "ticks are in the log like any other message"


async def test_a_rebuilt_core_is_the_one_that_died(redis: Redis, redis_url: str) -> None:
    async with life(redis_url) as first:
        await say(redis, *WORDS)
        await first.is_through()
        assert first.driver.core is not None
        state = first.driver.core.snapshot()
    sent = await said(redis)
    async with life(redis_url) as second:
        await second.leads()
        assert second.driver.core is not None
        assert second.driver.core.snapshot() == state
        await second.end()
    assert await said(redis) == sent, "effects of the replay were sent before"


@pytest.mark.parametrize("snapshot", [b"", b"\xc1", b"\x81\xa9num_words\xa3one"])
async def test_a_state_of_another_version_ends_the_service_with_what_to_do(
    redis: Redis, redis_url: str, snapshot: bytes
) -> None:
    state: Any = {"id": "1-0", "committed": "1-0", "state": snapshot, "clock": "0 0"}
    await redis.hset(streams.state(SERVICE), mapping=state)
    with pytest.raises(SnapshotError, match=f"key {streams.state(SERVICE)}.*start the version that wrote it"):
        async with life(redis_url) as one:
            await one.leads()
    assert await redis.hget(streams.state(SERVICE), "state") == snapshot, "nothing of it is lost"
    await redis.delete(streams.state(SERVICE))
    async with life(redis_url) as anew:
        await anew.leads()


async def test_a_snapshot_bounds_the_inbox_and_equals_the_replay_from_zero(redis: Redis, redis_url: str) -> None:
    words = [f"w{number}" for number in range(2 * driver.SNAPSHOT_EVERY_ENTRIES + 1000)]
    await say(redis, *words)
    recorded: Any = await redis.xrange(INBOX)
    async with life(redis_url) as killed:
        await killed.is_through()
        assert killed.driver.core is not None
        at_death = killed.driver.core.snapshot()
    rest: Any = await redis.xrange(INBOX)
    assert len(rest) < driver.SNAPSHOT_EVERY_ENTRIES

    saved: Any = await redis.hgetall(streams.state(SERVICE))
    since = [entry for entry in rest if id_order(entry[0]) > id_order(saved[b"id"])]
    assert len(rest) == len(since) + 1, "the log begins with the last entry that the snapshot covers"
    restored = CountingCore()
    restored.restore(saved[b"state"])
    fold(restored, since)
    assert restored.snapshot() == at_death

    ticks = [entry for entry in rest if id_order(entry[0]) > id_order(recorded[-1][0])]
    from_zero = CountingCore()
    fold(from_zero, recorded + ticks)
    assert from_zero.snapshot() == at_death


async def test_a_polite_end_leaves_a_snapshot_and_nothing_to_replay(redis: Redis, redis_url: str) -> None:
    async with life(redis_url) as one:
        await say(redis, *WORDS)
        await one.is_through()
        await one.end()
    kept: Any = await redis.xrange(INBOX)
    saved: Any = await redis.hgetall(streams.state(SERVICE))
    assert [entry_id for entry_id, _ in kept] == [saved[b"id"]] == [saved[b"committed"]]
    assert not await redis.exists(streams.lease(SERVICE)), "a standby need not wait"
    async with life(redis_url) as two:
        await say(redis, "more")
        await two.is_through()
    check_numbers(await said(redis), [*WORDS, "more"])
