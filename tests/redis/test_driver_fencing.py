"""Who leads: one instance at a time, and what another one decided is refused."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from shared.bus import streams
from shared.service.log.commit_log import CommitLog
from shared.service.log.lease import LEASE_S, RENEW_S, FencedError
from tests.redis.counting import INBOX, SERVICE, check_numbers, said, say
from tests.redis.life import Life, life
from tests.redis.waiting import lasting, until

SLACK_S = 2.0


async def time_to_lead(instance: Life) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await instance.leads()
    return clock() - began


def shown(metric: str) -> float | None:
    return REGISTRY.get_sample_value(metric, {"service": SERVICE})


async def lease_runs_out(redis: Redis) -> None:
    """As if the leader had been suspended for longer than its lease."""
    await redis.delete(streams.lease(SERVICE))


async def test_a_standby_takes_over_when_the_lease_of_the_dead_runs_out(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, instance="a") as leader:
        await leader.leads()
        async with life(redis_url, instance="b") as standby:
            await say(redis, "one")
            await leader.is_through()
            await lasting(standby.task, RENEW_S)
            assert standby.driver.core is None
            assert (leader.driver.stands_by, standby.driver.stands_by) == (False, True)
            await leader.kill()
            assert await time_to_lead(standby) < LEASE_S + RENEW_S + SLACK_S
            assert not standby.driver.stands_by
            await say(redis, "two")
            await standby.is_through()
    check_numbers(await said(redis), ["one", "two"])


async def test_a_standby_takes_over_at_once_from_a_leader_that_stops(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, instance="a") as leader:
        await leader.leads()
        async with life(redis_url, instance="b") as standby:
            await say(redis, "one")
            await leader.is_through()
            await leader.end()
            assert await time_to_lead(standby) < RENEW_S + SLACK_S < LEASE_S
            await say(redis, "two")
            await standby.is_through()
    check_numbers(await said(redis), ["one", "two"])


async def test_who_leads_is_to_be_seen(redis_url: str) -> None:
    async with life(redis_url) as leader:
        assert shown("treadle_lease_held") == 0
        await leader.leads()
        assert shown("treadle_lease_held") == 1
        await leader.end()
        assert shown("treadle_lease_held") == 0


async def test_a_restart_under_its_own_name_does_not_wait_for_its_old_lease(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, instance="a") as killed:
        await killed.leads()
    assert await redis.exists(streams.lease(SERVICE))
    async with life(redis_url, instance="a") as restarted:
        assert await time_to_lead(restarted) < SLACK_S


async def test_an_old_leader_stands_by_and_its_decisions_are_refused(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, instance="old") as old:
        await old.leads()
        await lease_runs_out(redis)
        usurper = CommitLog(redis, SERVICE, INBOX, "new")
        assert await usurper.lease.acquire()
        await say(redis, "one")

        async def stands_by() -> bool:
            return old.driver.core is None

        await until(stands_by)
        assert await said(redis) == [], "what it decided on the word was refused"
        await usurper.lease.release()
        await old.is_through()
        assert await said(redis) == ["1 one"], "it leads again, from the log"


async def test_a_lost_lease_is_taken_back_when_nobody_else_wants_it(redis: Redis, redis_url: str) -> None:
    async with life(redis_url) as one:
        await one.leads()
        await lease_runs_out(redis)
        await say(redis, "one")
        await one.is_through()
    check_numbers(await said(redis), ["one"])


async def test_of_two_processes_with_one_name_the_older_ends_and_says_why(redis: Redis, redis_url: str) -> None:
    async def twins() -> None:
        async with life(redis_url, instance="twin") as older:
            await older.leads()
            async with life(redis_url, instance="twin") as younger:
                await younger.leads()
                await say(redis, "one")
                await asyncio.wait([older.task], timeout=RENEW_S + SLACK_S)
                await younger.is_through()

    with pytest.raises(FencedError, match="counting: another instance took the lease from twin#1"):
        await twins()
    check_numbers(await said(redis), ["one"])
