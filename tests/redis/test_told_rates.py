"""What keys have left for all gateways: told to a real Redis by processes, which hear of one another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.inflight.bus.batched_scripts import BatchedScripts
from gateway.tenants.kept_rates import KEPT_ADVANCE_MS, KeptRates
from gateway.tenants.rates import DueRate
from gateway.tenants.shared_bucket import HeardRate, SharedBucket, Telling
from shared.bus import streams
from tests.gateway.tenants.rates_in_memory import KeptBucket
from tests.redis.wire import transactions

LIMIT = 60  # one a second, so a test that takes a few milliseconds sees them in the third digit
KEY = streams.rate("requests", LIMIT, b"\x01\xff".hex())
FIRST = Telling(taken=10, level=50, keeps=0, wants_advance=True)
MINUTE_MS = 60_000


def due(key_id: bytes = b"\x01\xff", per_minute: int = LIMIT) -> DueRate:
    return DueRate("requests", key_id, SharedBucket(per_minute, 0.0))


async def tell(redis: Redis, process: str, telling: Telling) -> tuple[int, int]:
    """What is free, and the advance, in whole ones."""
    [heard] = await KeptRates(redis, process).tell([(due(), telling)])
    assert heard.free == pytest.approx(round(heard.free, 1), abs=0.09), "hardly anything has come since"
    return round(heard.free), round(heard.advance)


async def kept(redis: Redis) -> Any:
    return json.loads(await redis.get(KEY) or "")


async def age(redis: Redis, ms: int) -> None:
    """As if all that is kept were older."""
    bucket = await kept(redis)
    bucket["told_ms"] -= ms
    for advance in bucket["advances"].values():
        advance["given_ms"] -= ms
    await redis.set(KEY, json.dumps(bucket))


async def test_processes_hear_of_one_another(redis: Redis) -> None:
    assert await tell(redis, "a", FIRST) == (50, 25), "a bucket that nobody has told of is as full as the first says"
    newcomer = Telling(taken=1, level=59, keeps=0, wants_advance=True)
    assert await tell(redis, "b", newcomer) == (24, 12), "without the advance of the other"
    assert await tell(redis, "a", Telling(21, 4, keeps=2, wants_advance=True)) == (16, 8)
    assert await tell(redis, "a", Telling(0, 16, keeps=15, wants_advance=True)) == (16, 15), "what it may still use"
    assert await tell(redis, "a", Telling(0, 16, keeps=0, wants_advance=False)) == (16, 0)
    assert await tell(redis, "b", Telling(40, 0, keeps=0, wants_advance=True)) == (-12, 0), "answers make debts"
    assert (await kept(redis))["advances"] == {}


async def test_a_bucket_is_filled_up_as_time_passes(redis: Redis) -> None:
    await tell(redis, "a", FIRST)
    nothing = Telling(0, 0, keeps=0, wants_advance=False)
    await tell(redis, "a", nothing)
    await age(redis, 5_000)
    assert await tell(redis, "a", nothing) == (55, 0)
    await age(redis, MINUTE_MS)
    assert await tell(redis, "a", nothing) == (60, 0)
    await age(redis, -MINUTE_MS)
    assert await tell(redis, "a", nothing) == (60, 0), "a clock that goes back costs nothing"


async def test_what_a_dead_process_had_in_advance_comes_back(redis: Redis) -> None:
    await tell(redis, "a", FIRST)
    asks = Telling(0, 0, keeps=0, wants_advance=False)
    assert await tell(redis, "b", asks) == (25, 0)
    await age(redis, KEPT_ADVANCE_MS + 1_000)
    assert await tell(redis, "b", asks) == (57, 0)


async def test_a_bucket_expires_once_it_is_full_and_never_stays_for_long(redis: Redis) -> None:
    await tell(redis, "a", FIRST)
    assert await redis.ttl(KEY) in (10 + streams.RATE_SPARE_S - 1, 10 + streams.RATE_SPARE_S)
    await tell(redis, "a", replace(FIRST, taken=1_000_000))
    assert streams.MAX_RATE_TTL_S - 1 <= await redis.ttl(KEY) <= streams.MAX_RATE_TTL_S


async def test_a_redis_that_has_lost_a_bucket_is_told_its_level(redis: Redis) -> None:
    await tell(redis, "a", FIRST)
    await redis.flushdb()
    assert await tell(redis, "a", Telling(3, level=7, keeps=0, wants_advance=True)) == (7, 4)


@pytest.mark.parametrize("value", ["no bucket", "5", "{}", "null"])
async def test_what_is_no_bucket_is_made_one(redis: Redis, value: str) -> None:
    await redis.set(KEY, value)
    assert await tell(redis, "a", FIRST) == (50, 25)
    await redis.delete(KEY)
    await redis.xadd(KEY, {"m": value})
    assert await tell(redis, "a", FIRST) == (50, 25)


async def test_keys_are_named_by_digest_and_limit_and_told_of_in_one_step(redis: Redis) -> None:
    others = [(due(b"\x02"), FIRST), (due(per_minute=30), replace(FIRST, level=20)), (due(), FIRST)]
    scripts = BatchedScripts(redis)
    heard: list[HeardRate] = []

    async def all_of_them() -> None:
        heard.extend(await KeptRates(scripts, "a").tell(others))

    assert await transactions(redis, all_of_them()) == [["TIME", *["GET", "SET"] * 3]]
    await scripts.aclose()
    assert heard == [HeardRate(50, 25), HeardRate(20, 10), HeardRate(50, 25)]
    found: list[Any] = await redis.keys()
    assert sorted(found) == [
        b"treadle:rate:requests:30:01ff",
        b"treadle:rate:requests:60:01ff",
        b"treadle:rate:requests:60:02",
    ]


async def test_the_one_of_the_tests_in_memory_does_the_same(redis: Redis) -> None:
    memory = KeptBucket(LIMIT)
    for process, telling in [
        (0, Telling(0, 60, keeps=0, wants_advance=True)),
        (1, Telling(5, 55, keeps=0, wants_advance=True)),
        (0, Telling(12, 30, keeps=9, wants_advance=True)),
        (1, Telling(-3, 30, keeps=40, wants_advance=True)),
        (0, Telling(70, 30, keeps=1, wants_advance=True)),
        (1, Telling(0, 30, keeps=0, wants_advance=False)),
    ]:
        heard = memory.tell(process, telling, 0.0)
        [real] = await KeptRates(redis, str(process)).tell([(due(), telling)])
        assert (real.free, real.advance) == pytest.approx((heard.free, heard.advance), abs=0.09)
