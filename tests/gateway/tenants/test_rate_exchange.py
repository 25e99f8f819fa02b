"""When a process tells what its keys have taken, who waits for it, and what it does where nobody answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from gateway.openai.errors.errors import ApiError
from gateway.tenants.auth import Client, KeyRing
from gateway.tenants.rate_exchange import MAX_BUCKETS, RateExchange, RateMetrics
from gateway.tenants.rates import Rates
from gateway.tenants.shared_bucket import HeardRate
from tests.gateway.tenants.rates_in_memory import MemoryRates

SIX, FREE = Client("a", None, None, 6, key_id=b"six"), Client("a", None, key_id=b"free")


class Process:
    """A gateway's process, as far as rates go."""

    def __init__(self) -> None:
        self.kept, self.rates, self.registry = MemoryRates(), Rates(), CollectorRegistry()
        self.exchange = RateExchange(self.rates, RateMetrics(self.registry))

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        async with self.exchange.telling(self.kept, lambda: pytest.fail("it ended")):
            yield

    @property
    def is_alone(self) -> bool:
        return self.registry.get_sample_value("treadle_key_rates_alone") == 1


async def test_the_first_request_waits_for_nobody_and_the_next_for_what_others_took() -> None:
    process = Process()
    process.kept.heard = HeardRate(free=3, advance=1.5)
    async with process.telling():
        await process.exchange.enter(SIX)
        assert process.kept.told == []
        await process.exchange.enter(SIX)
        [[(what, telling)]] = process.kept.told
        assert (what, telling.taken, telling.wants_advance) == ("requests", 1, True)
        await process.exchange.enter(SIX)
        process.kept.heard = HeardRate(free=0, advance=0)
        with pytest.raises(ApiError) as refusal:
            await process.exchange.enter(SIX)
    assert refusal.value.headers["Retry-After"] == "10"
    assert [telling.taken for [(_, telling)] in process.kept.told] == [1, 2]


async def test_who_leaves_tells_the_rest_and_keeps_no_advance() -> None:
    process = Process()
    async with process.telling():
        await process.exchange.enter(SIX)
    [[(_, telling)]] = process.kept.told
    assert (telling.taken, telling.keeps, telling.wants_advance) == (1, 0, False)
    assert process.rates.num_due == 0


async def test_keys_without_limits_are_not_told_of() -> None:
    process = Process()
    async with process.telling():
        for _ in range(10):
            await process.exchange.enter(FREE)
            await process.exchange.take_prompt(FREE, 1000)
            process.exchange.settle(FREE, 1000, 1000)
    assert process.kept.told == []


async def test_where_nobody_answers_each_goes_by_what_it_knows_and_tells_it_later() -> None:
    process = Process()
    process.kept.is_away = True
    async with process.telling():
        for _ in range(6):
            await process.exchange.enter(SIX)
        with pytest.raises(ApiError):
            await process.exchange.enter(SIX)
        assert process.is_alone
        process.kept.is_away = False
    assert not process.kept.told, "it has left alone"
    process.kept.heard = HeardRate(free=-2, advance=0)
    async with process.telling():
        with pytest.raises(ApiError):
            await process.exchange.enter(SIX)
    assert [telling.taken for [(_, telling)] in process.kept.told] == [6]
    assert not process.is_alone


async def test_no_more_than_so_many_buckets_are_told_of_at_a_time() -> None:
    process = Process()
    process.kept.heard = HeardRate(free=5, advance=0)
    async with process.telling():
        for number in range(2 * MAX_BUCKETS + 1):
            await process.exchange.enter(Client("a", None, None, 6, key_id=str(number).encode()))
    assert [len(told) for told in process.kept.told] == [MAX_BUCKETS, MAX_BUCKETS, 1]


async def test_a_key_that_is_gone_is_not_told_of() -> None:
    process = Process()
    async with process.telling():
        await process.exchange.enter(SIX)
        process.rates.keep(KeyRing([]))
    assert process.kept.told == []
