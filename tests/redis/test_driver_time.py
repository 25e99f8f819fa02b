"""Time is a message: a Tick comes when the core's ``wake_at`` has, exactly once, under any load; idling is cheap."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from shared.messages.codec import decode_entry
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.background.tasks import cancel_all
from shared.service.core import Effect, Send
from shared.service.log.cluster_clock import id_time
from shared.service.log.commit_log import MAX_BATCH_ENTRIES
from shared.service.log.lease import RENEW_S
from tests.redis.counting import INBOX, OUT, num_ticks, said, say
from tests.redis.life import Life, life
from tests.redis.waiting import lasting, until

AFTER_S = 0.05
IDLE_S = 2 * RENEW_S


class AlarmCore:
    """Wakes ``AFTER_S`` after a word and says how late that was, in milliseconds."""

    def __init__(self) -> None:
        self.wake_at: float | None = None

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        if isinstance(message, Cancel) and message.request_id == "set":
            self.wake_at = now + AFTER_S
        elif isinstance(message, Tick) and self.wake_at is not None and now >= self.wake_at:
            late_ms = round((now - self.wake_at) * 1000)
            self.wake_at = None
            return [Send(OUT, Cancel(request_id=str(late_ms)))]
        return []

    def snapshot(self) -> bytes:
        return b"" if self.wake_at is None else str(self.wake_at).encode()

    def restore(self, state: bytes) -> None:
        self.wake_at = float(state) if state else None

    def describe(self) -> dict[str, object]:
        return {}


async def has_rung(redis: Redis) -> None:
    async def is_out() -> bool:
        return bool(await redis.exists(OUT))

    await until(is_out)


async def num_calls(redis: Redis) -> int:
    """Commands that the server has run, from scripts too."""
    stats: Any = await redis.info("commandstats")
    return sum(command["calls"] for command in stats.values())


async def idle(one: Life, redis: Redis) -> int:
    """Commands of an interval in which nothing happens."""
    before = await num_calls(redis)
    await lasting(one.task, IDLE_S)
    return await num_calls(redis) - before - 1


async def test_one_tick_when_the_time_has_come(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, AlarmCore) as one:
        await say(redis, "set")
        await has_rung(redis)
        await say(redis, "other")
        await one.is_through()
    [late_ms] = await said(redis)
    assert 0 <= int(late_ms) < 1000
    assert await num_ticks(redis) == 1


async def test_a_tick_that_is_due_while_nobody_lives_comes_with_the_next_life(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, AlarmCore) as first:
        await say(redis, "set")

        async def is_set() -> bool:
            return first.driver.core is not None and first.driver.core.wake_at is not None

        await until(is_set)
    async with life(redis_url, AlarmCore) as second:
        await has_rung(redis)
        await second.is_through()
    assert await num_ticks(redis) == 1
    assert len(await said(redis)) == 1


async def test_ticks_do_not_starve_under_constant_load(redis: Redis, redis_url: str) -> None:
    await say(redis, *["load"] * 1000)
    async with life(redis_url, AlarmCore) as one:
        load = asyncio.create_task(constant_load(redis))
        await one.leads()
        await say(redis, "set")
        await has_rung(redis)
        assert not load.done(), "the load went on until the Tick"
        await cancel_all([load])
        await one.is_through()
    [late_ms] = await said(redis)
    assert 0 <= int(late_ms) < 1000
    assert await num_ticks(redis) <= 1, "on a slow machine a snapshot has trimmed it meanwhile"


async def test_one_tick_although_it_queues_behind_a_backlog(redis: Redis, redis_url: str) -> None:
    await say(redis, "set", *["load"] * 10 * MAX_BATCH_ENTRIES)
    last: Any = await redis.xrevrange(INBOX, count=1)

    async def is_due() -> bool:
        seconds, microseconds = await redis.time()
        return seconds + microseconds / 1e6 > id_time(last[0][0]) + AFTER_S

    await until(is_due)
    async with life(redis_url, AlarmCore) as one:
        await one.is_through()
    assert len(await said(redis)) == 1
    assert await num_ticks(redis) == 1


async def constant_load(redis: Redis) -> None:
    for _ in range(10_000):
        await say(redis, *["load"] * 20)


@pytest.mark.parametrize("alarm_s", [None, 3600.0], ids=["no alarm", "an alarm far away"])
async def test_an_idle_driver_only_renews_its_lease(redis: Redis, redis_url: str, alarm_s: float | None) -> None:
    def make_core() -> AlarmCore:
        core = AlarmCore()
        core.wake_at = alarm_s and alarm_s + 1e10
        return core

    async with life(redis_url, make_core) as one:
        await one.leads()
        # a read, and a commit script of GET, HGET, PEXPIRE, HINCRBY, HSET and TIME, each RENEW_S
        assert await idle(one, redis) <= 8 * (IDLE_S / RENEW_S + 2)


class ForgettingCore(AlarmCore):
    """At a word it takes the Ticks out of the inbox, as a bound on its length does where the service is far behind."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        if isinstance(message, Cancel) and message.request_id == "forget":
            with BlockingRedis.from_url(self._url) as client:
                entries: Any = client.xrange(INBOX)
                ticks = [entry_id for entry_id, fields in entries if isinstance(decode_entry(fields), Tick)]
                assert client.xdel(INBOX, *ticks) == 1
        return super().handle(message, now)


async def test_a_tick_that_was_trimmed_before_it_was_read_is_given_again(redis: Redis, redis_url: str) -> None:
    """Else no Tick would ever come in this term: dead nodes would live on, and leases run out."""
    load = ["load"] * MAX_BATCH_ENTRIES
    await say(redis, "set", *load, "forget", *load)
    last: Any = await redis.xrevrange(INBOX, count=1)

    async def is_due() -> bool:
        seconds, microseconds = await redis.time()
        return seconds + microseconds / 1e6 > id_time(last[0][0]) + AFTER_S

    await until(is_due)
    async with life(redis_url, lambda: ForgettingCore(redis_url)) as one:
        await has_rung(redis)
        await one.is_through()
    assert await num_ticks(redis) == 1
