"""Redis's clock is set back or forward: ids stand still or leap, and a service's time does neither, in any life.

An entry with an id of one's own choice makes ids what a step makes them: those behind it can only be larger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from shared.bus import streams
from shared.messages.codec import FIELD, encode
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.core import Effect, Send
from tests.redis.counting import INBOX, OUT, SERVICE, said
from tests.redis.life import life
from tests.redis.waiting import until

STEP_S = 600
ALARMS = 10
EVERY_S = 0.1
EARLY_S = 0.02  # how far the clock was set is measured between two looks at it, so a beginning may seem early
LATE_S = 5.0  # a busy machine


class MetronomeCore:
    """From the word ``go`` on wakes every tenth of a second, and says its time, in milliseconds."""

    def __init__(self) -> None:
        self.wake_at: float | None = None
        self.num_left = ALARMS

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        if message == Cancel(request_id="go"):
            self.wake_at = now + EVERY_S
        elif isinstance(message, Cancel):
            return [Send(OUT, Cancel(request_id=f"{now * 1000:.0f}"))]
        elif isinstance(message, Tick) and self.wake_at is not None and now >= self.wake_at:
            self.num_left -= 1
            self.wake_at = now + EVERY_S if self.num_left else None
            return [Send(OUT, Cancel(request_id=f"{now * 1000:.0f}"))]
        return []

    def snapshot(self) -> bytes:
        return f"{self.wake_at} {self.num_left}".encode()

    def restore(self, state: bytes) -> None:
        wake_at, num_left = state.decode().split()
        self.wake_at, self.num_left = None if wake_at == "None" else float(wake_at), int(num_left)

    def describe(self) -> dict[str, object]:
        return {}


async def redis_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds * 1000 + microseconds // 1000)


async def leap(redis: Redis, word: str) -> int:
    """An entry from ten minutes ahead; the clock's time at it."""
    now_ms = await redis_ms(redis)
    await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id=word))}, id=f"{now_ms + STEP_S * 1000}-0")
    return now_ms


def has_said(redis: Redis, number: int) -> Callable[[], Awaitable[bool]]:
    async def is_said() -> bool:
        return len(await said(redis)) >= number

    return is_said


async def test_time_goes_on_while_ids_stand_still(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, MetronomeCore) as one:
        await one.leads()
        began_ms = await leap(redis, "go")
        await until(has_said(redis, ALARMS))
        times_ms = [int(time) - began_ms for time in await said(redis)]
    assert times_ms == sorted(times_ms)
    between_ms = [after - before for before, after in zip([0, *times_ms], times_ms, strict=False)]
    assert min(between_ms) >= EVERY_S * 1000 - 1, "each tenth of a second has passed in the core's time"
    assert times_ms[-1] < ALARMS * EVERY_S * 1000 + LATE_S * 1000, "and no ten minutes"
    shared: Any = await redis.get(streams.CLOCK)
    assert -STEP_S <= float(shared) < -STEP_S + LATE_S


async def test_each_life_reads_the_time_that_the_last_one_read(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, MetronomeCore) as first:
        await first.leads()
        began_ms = await leap(redis, "one")
        await until(has_said(redis, 1))
    async with life(redis_url, MetronomeCore, "other") as second:
        await redis.delete(streams.lease(SERVICE))
        await second.leads()
        await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="two"))})
        await until(has_said(redis, 2))
        await second.end()  # with a snapshot
    async with life(redis_url, MetronomeCore, "third") as third:
        await third.leads()
        await redis.xadd(INBOX, {FIELD: encode(Cancel(request_id="three"))})
        await until(has_said(redis, 3))
    one, two, three = (int(time) - began_ms for time in await said(redis))
    assert one <= two <= three < LATE_S * 3000
    assert one >= -EARLY_S * 1000


async def test_another_service_goes_by_the_same_time(redis: Redis, redis_url: str) -> None:
    """It was away when the clock was set: what it sees has to be taken as the others take it."""
    await redis.set(streams.CLOCK, f"{-STEP_S}.0")
    async with life(redis_url, MetronomeCore) as one:
        await one.leads()
        now_ms = await leap(redis, "one")
        await until(has_said(redis, 1))
    [time_ms] = await said(redis)
    assert -EARLY_S * 1000 <= int(time_ms) - (now_ms - STEP_S * 1000) < LATE_S * 1000
