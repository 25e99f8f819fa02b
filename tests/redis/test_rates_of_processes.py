"""Two gateways' processes count a key's requests by one Redis, which may go and come back empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from gateway.inflight.bus.batched_scripts import BatchedScripts
from gateway.openai.errors.errors import ApiError
from gateway.tenants.auth import Client
from gateway.tenants.kept_rates import KeptRates
from gateway.tenants.rate_exchange import RateExchange, RateMetrics
from gateway.tenants.rates import Rates
from shared.bus.bus import connect
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

LIMIT = 12
KEY = Client("a", None, None, LIMIT, key_id=b"key")


class Process:
    def __init__(self) -> None:
        self.rates, self._registry = Rates(), CollectorRegistry()
        self._exchange = RateExchange(self.rates, RateMetrics(self._registry))

    async def is_let_in(self) -> bool:
        try:
            await self._exchange.enter(KEY)
        except ApiError:
            return False
        return True

    async def num_let_in(self, num_requests: int) -> int:
        return sum([await self.is_let_in() for _ in range(num_requests)])

    async def is_alone(self) -> bool:
        return self._registry.get_sample_value("treadle_key_rates_alone") == 1

    async def is_among_others(self) -> bool:
        return not await self.is_alone()

    @asynccontextmanager
    async def among_others(self, redis: Redis, name: str) -> AsyncIterator[None]:
        scripts = BatchedScripts(redis)
        async with self._exchange.telling(KeptRates(scripts, name), lambda: pytest.fail("it ended")):
            yield
        await scripts.aclose()


@asynccontextmanager
async def two_processes(redis: Redis) -> AsyncIterator[tuple[Process, Process]]:
    one, other = Process(), Process()
    async with one.among_others(redis, "one"), other.among_others(redis, "other"):
        yield one, other


async def test_together_they_let_in_what_the_key_may_have(redis: Redis) -> None:
    async with two_processes(redis) as (one, other):
        by_turns = [(await one.is_let_in(), await other.is_let_in()) for _ in range(LIMIT)]
    num_let_in = sum(map(sum, by_turns))
    assert LIMIT - 1 <= num_let_in <= LIMIT + 2
    assert by_turns[-1] == (False, False)


async def test_one_alone_lets_in_all_of_it_though_it_comes_at_once(redis: Redis) -> None:
    async with two_processes(redis) as (one, other):
        assert await one.num_let_in(LIMIT + 3) == LIMIT
        assert await other.num_let_in(3) == 1, "it had heard nothing"
        assert await other.num_let_in(3) == 0
    newcomer = Process()
    async with newcomer.among_others(redis, "third"):
        assert await newcomer.num_let_in(3) == 1


async def test_while_redis_is_away_each_goes_by_what_it_knows(own_server: OwnServer) -> None:
    async with connect(own_server.url) as redis, two_processes(redis) as (one, other):
        assert (await one.num_let_in(4), await other.num_let_in(2)) == (4, 2)
        own_server.kill()
        assert await one.num_let_in(LIMIT) >= LIMIT - 6, "not refused, though nobody answers"
        assert await one.is_alone()
        await own_server.start()
        await redis.flushdb()
        await until(one.is_among_others)
        assert await one.num_let_in(3) == 0
        # A Redis that comes back empty is told what is left. The other uses what it still has in advance, half of six
        # at most and one more, and no new bucket.
        assert await other.num_let_in(LIMIT) <= 4
