"""Carries what keys have taken here to all gateways' processes, and what others took back: no request waits for that.

Of what there is to tell (`Rates.due`) as much as fits goes out `TELL_S` after the last telling, and where it is urgent
`SOON_S` after it: while a key spends a large part of what it has left. Only a request that would be refused otherwise
waits for the next telling.

Where Redis does not answer, each process goes by what it knows alone, which it says once; then it tells what it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
from prometheus_client import CollectorRegistry, Gauge
from redis.exceptions import RedisError

from gateway.tenants.auth import Client
from gateway.tenants.kept_rates import TellsRates
from gateway.tenants.rates import DueRate, Rates
from gateway.tenants.shared_bucket import LATELY_S
from shared.service.background.tasks import Supervised

TELL_S = LATELY_S
SOON_S = 0.02  # so a process tells 50 times a second at most
MAX_BUCKETS = 64  # in one telling: Redis is held up for less than a millisecond
ANSWER_S = 0.5  # Redis is away where it has not answered by then
PATIENCE_S = 1.0  # of a request that waits for tellings: longer than it takes to find out that Redis is away

_log = structlog.get_logger(__name__)


class RateMetrics:
    """What is seen of the exchange."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.is_alone = Gauge(
            "treadle_key_rates_alone",
            "1 while Redis does not answer and this process counts the rates of keys alone",
            registry=registry,
        )


class RateExchange:
    """Counts for requests, and tells of it while it is `telling`: without that, this process is alone."""

    def __init__(self, rates: Rates, metrics: RateMetrics) -> None:
        self._rates = rates
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._is_due = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._was_told = asyncio.Event()  # of the next telling; another one for each
        self._told_s = self._clock() - SOON_S

    async def enter(self, client: Client) -> None:
        """As `Rates.enter`, once it is known."""
        await self._once_known(lambda now, may_wait: self._rates.enter(client, now, may_wait=may_wait))

    async def take_prompt(self, client: Client, num_tokens: int) -> None:
        """As `Rates.take_prompt`, once it is known."""
        await self._once_known(
            lambda now, may_wait: self._rates.take_prompt(client, num_tokens, now, may_wait=may_wait)
        )

    def settle(self, client: Client, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """As `Rates.settle`."""
        self._rates.settle(client, num_prompt_tokens, num_output_tokens, self._clock())
        self._note()

    @asynccontextmanager
    async def telling(self, kept: TellsRates, on_failure: Callable[[], None]) -> AsyncIterator[None]:
        """Inside, others are told; on leaving they are told the rest.

        ``on_failure`` has the process leave, as `Supervised.until_left` says.
        """
        self._rates.is_alone = False
        supervised = Supervised()
        async with supervised.until_left(on_failure):
            supervised.start("telling of rates", self._tell_all(kept))
            yield
        while self._rates.num_due and not self._rates.is_alone:
            await self._tell(kept, is_last=True)

    async def _once_known(self, count: Callable[[float, bool], bool]) -> None:
        give_up_s = self._clock() + PATIENCE_S
        while not count(now := self._clock(), now < give_up_s):
            self._note()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_s):
                    await self._was_told.wait()
        self._note()

    def _note(self) -> None:
        if self._rates.num_due:
            self._is_due.set()
        if self._rates.is_urgent and not self._rates.is_alone:
            self._is_urgent.set()

    async def _tell_all(self, kept: TellsRates) -> None:
        while await self._is_due.wait():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._is_urgent.wait()
            await asyncio.sleep(max(0.0, self._told_s + SOON_S - self._clock()))
            self._is_due.clear()
            self._is_urgent.clear()
            await self._tell(kept)
            self._note()

    async def _tell(self, kept: TellsRates, *, is_last: bool = False) -> None:
        """Once; requests that wait for it go on, whatever becomes of it."""
        due = self._rates.due(MAX_BUCKETS)
        if not due:
            return  # its key is gone
        self._rates.is_urgent = self._rates.num_due > len(due)
        try:
            await self._tell_of(kept, due, is_last=is_last)
        except (RedisError, OSError) as error:
            self._be_alone(str(error) or type(error).__name__)
        else:
            self._be_among_others()
        finally:
            self._rates.told(due)
            self._told_s = self._clock()
            self._was_told.set()
            self._was_told = asyncio.Event()

    async def _tell_of(self, kept: TellsRates, due: list[DueRate], *, is_last: bool) -> None:
        now = self._clock()
        told = [(one, one.bucket.tell(now, is_last=is_last)) for one in due]
        is_heard = False
        try:
            async with asyncio.timeout(ANSWER_S):
                heard = await kept.tell(told)
            is_heard = True
        finally:
            if not is_heard:
                for one in due:
                    one.bucket.hear_nothing()
        now = self._clock()
        for one, news in zip(due, heard, strict=True):
            one.bucket.hear(news, now)

    def _be_alone(self, error: str) -> None:
        if not self._rates.is_alone:
            _log.warning("rates of keys are counted alone", error=error)
        self._rates.is_alone = True
        self._metrics.is_alone.set(1)

    def _be_among_others(self) -> None:
        if self._rates.is_alone:
            _log.info("rates of keys are counted together again")
        self._rates.is_alone = False
        self._metrics.is_alone.set(0)
