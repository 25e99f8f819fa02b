"""What is not handled is seen in Redis, whoever leads and whether or not anybody does."""

from __future__ import annotations

import asyncio
import time

from redis.asyncio import Redis

from shared.bus.bus import connect
from shared.service.admin.inbox_lag import InboxLag, ends, watch
from shared.service.background.tasks import cancel_all
from tests.redis.counting import INBOX, SERVICE, committed_id, say
from tests.redis.life import life
from tests.redis.waiting import until


async def test_both_ends_of_an_inbox(redis: Redis, redis_url: str) -> None:
    assert await ends(redis, SERVICE, INBOX) == (b"0-0", b"0-0")
    await say(redis, "a", "b")
    newest, committed = await ends(redis, SERVICE, INBOX)
    assert (newest > b"0-0", committed) == (True, b"0-0")
    async with life(redis_url) as one:
        await one.leads()
        await one.is_through()
        assert await ends(redis, SERVICE, INBOX) == (newest, newest) == (newest, await committed_id(redis))


async def test_an_age_grows_while_nobody_handles_and_is_over_when_somebody_has(redis: Redis, redis_url: str) -> None:
    """As a standby sees a leader that hangs."""
    await say(redis, "a")
    lag = InboxLag()
    task = asyncio.create_task(watch(redis, SERVICE, INBOX, lag))

    async def is_old() -> bool:
        return (lag.age_s(time.monotonic()) or 0.0) >= 1.0

    async def is_new() -> bool:
        return lag.age_s(time.monotonic()) == 0.0

    try:
        await until(is_old)
        async with life(redis_url) as one:
            await one.is_through()
            await until(is_new)
    finally:
        await cancel_all([task])


async def test_a_redis_that_is_away_does_not_end_the_watch(redis_url: str) -> None:
    nowhere = connect("redis://127.0.0.1:1/0")
    task = asyncio.create_task(watch(nowhere, SERVICE, INBOX, lag := InboxLag()))
    done, _ = await asyncio.wait([task], timeout=0.7)
    assert not done
    assert lag.age_s(time.monotonic()) is None
    await cancel_all([task])
    await nowhere.aclose()
