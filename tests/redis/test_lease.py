"""A leader keeps its lease through whatever takes long, and loses it for what never ends."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.bus import streams
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.core import Effect
from shared.service.log.commit_log import CommitLog
from shared.service.log.lease import LEASE_S, READ_BYTES_PER_S, RENEW_S, FencedError, Lease, hold_s
from shared.service.log.lease_keeper import HUNG_STATUS
from tests.redis import counting_service
from tests.redis.counting import INBOX, SERVICE, CountingCore, check_numbers, said, say
from tests.redis.life import life
from tests.redis.waiting import until

LONG_S = 1.5 * LEASE_S
HANG_S = 1.0


class SlowCore(CountingCore):
    """Takes longer for the word ``slow`` than a silent leader has."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        if message == Cancel(request_id="slow"):
            time.sleep(LONG_S)
        return super().handle(message, now)


async def token(redis: Redis) -> bytes:
    held: Any = await redis.get(streams.lease(SERVICE))
    return bytes(held)


@pytest.fixture
async def leader(redis: Redis) -> CommitLog:
    log = CommitLog(redis, SERVICE, INBOX, "a")
    assert await log.lease.acquire()
    return log


async def watches(redis: Redis, process: multiprocessing.process.BaseProcess, num_clients: int) -> None:
    """Wait until a standby in a process of its own has come."""

    async def has_come() -> bool:
        assert process.is_alive()
        return len(await redis.client_list()) > num_clients

    await until(has_come)


async def test_neither_a_long_decision_nor_a_long_rebuild_costs_the_lease(redis: Redis, redis_url: str) -> None:
    """Both block the leader's loop for longer than a standby, in a process of its own, waits for signs of life."""
    async with life(redis_url, SlowCore, "a") as one:
        await one.leads()
        num_clients = len(await redis.client_list())
        with child(redis_url) as standby:
            await watches(redis, standby, num_clients)
            held = await token(redis)
            await say(redis, "one")
            await one.is_through()  # and has the connections that it needs: none is being made while the loop is held
            await say(redis, "slow", "two")
            await one.is_through()
            assert await token(redis) == held
            await one.kill()
            async with life(redis_url, SlowCore, "a") as again:  # which replays what took so long
                await again.leads()
                held = await token(redis)
                assert held.startswith(b"a#")
                await say(redis, "three")
                await again.is_through()
                assert await token(redis) == held
    check_numbers(await said(redis), ["one", "slow", "two", "three"])


async def test_a_standby_waits_from_the_last_sign_of_life_on(redis: Redis, leader: CommitLog) -> None:
    standby = Lease(redis, SERVICE, "b")
    began = time.monotonic()
    assert not await standby.acquire()

    async def is_leader() -> bool:
        if time.monotonic() - began < RENEW_S:
            await leader.lease.renew()  # the last is about here
        return await standby.acquire()

    await until(is_leader)
    assert time.monotonic() - began >= LEASE_S
    with pytest.raises(FencedError):
        await leader.lease.renew()


async def test_a_standby_waits_as_long_as_the_leader_has_asked_for(redis: Redis, leader: CommitLog) -> None:
    asked_s = hold_s(20_000_000, READ_BYTES_PER_S)
    assert asked_s == LEASE_S + 1.0
    await leader.lease.renew(asked_s)
    standby = Lease(redis, SERVICE, "b")
    began = time.monotonic()
    await until(standby.acquire)
    assert asked_s <= time.monotonic() - began


async def test_no_wall_clock_deposes_a_leader(redis: Redis, leader: CommitLog) -> None:
    """Redis's clock leaps by more than any lease: what expires by it is not what decides."""
    assert await redis.pttl(streams.lease(SERVICE)) > 10 * 60 * 1000


@contextmanager
def child(url: str) -> Iterator[multiprocessing.process.BaseProcess]:
    """A service process that gives an entry `HANG_S`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([counting_service.__name__])
    process = context.Process(target=counting_service.serve, args=(url, "child", HANG_S), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


async def test_an_entry_that_keeps_its_core_busy_for_ever_is_set_aside_and_the_process_ends(
    redis: Redis, redis_url: str
) -> None:
    await say(redis, "one", counting_service.HANG, "two")
    with child(redis_url) as process:

        async def has_ended() -> bool:
            return not process.is_alive()

        await until(has_ended)
        assert process.exitcode == HUNG_STATUS
    with child(redis_url):

        async def is_through() -> bool:
            return len(await said(redis)) == 2

        await until(is_through)
    check_numbers(await said(redis), ["one", "two"])
    letters: Any = await redis.xrange(streams.DEAD_LETTER)
    [(_, letter)] = letters
    assert letter[b"reason"] == b"the core did not end within 1 s"
