"""Keeps pools as the scheduler wishes: reads `Scale` from the provider's stream, does it, answers `Scaled`.

It runs beside the scheduler's driver and has no state to lose: each wish is told again every few seconds, and what runs
is looked up. Of the scheduler's instances only the active one acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.scheduler.providers.provider import Provider, ProviderError, make_provider
from shared.bus import streams
from shared.bus.bus import StreamReader
from shared.bus.system_writes import SystemWriter, add
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool
from shared.messages.nodes.nodes import Scale, Scaled
from shared.service.background.tasks import cancel_all
from shared.service.service import redis_url

BACKOFF_S = 1.0

log = structlog.get_logger()


class PoolKeeper:
    """One pool: the newest wish, one try at a time."""

    def __init__(self, pool: NodePool, provider: Provider, redis: Redis) -> None:
        self._pool = pool
        self._provider = provider
        self._writer = SystemWriter(redis)
        self._wanted: int | None = None
        self._live = 0
        self._news = asyncio.Event()

    def wish(self, num_nodes: int) -> None:
        """So many nodes shall run."""
        self._wanted = num_nodes
        self._news.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            assert self._wanted is not None
            error = await self._try(self._wanted)
            await self._answer(Scaled(pool=self._pool.name, num_nodes=self._live, error=error))

    async def _try(self, num_nodes: int) -> str:
        try:
            self._live = await asyncio.to_thread(self._provider.scale, self._pool, num_nodes)
        except ProviderError as error:
            log.error("pool not scaled", pool=self._pool.name, num_nodes=num_nodes, error=str(error))
            return str(error)
        return ""

    async def _answer(self, scaled: Scaled) -> None:
        try:
            await self._writer.write(add(streams.SCHEDULER, scaled, streams.MAX_SERVICE_LOG))
        except (RedisError, OSError) as error:
            log.warning("answer lost: the next one says the same", pool=scaled.pool, error=str(error))


async def keep_pools(config: ClusterConfig, redis: Redis, is_active: Callable[[], bool]) -> None:
    """Until it is cancelled; returns at once where another process provides nodes. Raises `ConfigError`."""
    if config.scaling.provider == "none":
        return
    provider = make_provider(config, redis_url(config))
    keepers = {pool.name: PoolKeeper(pool, provider, redis) for pool in config.pools}
    tasks = [asyncio.create_task(keeper.run()) for keeper in keepers.values()]
    try:
        await asyncio.gather(_read(redis, keepers, is_active), *tasks)
    finally:
        await cancel_all(tasks)


async def _read(redis: Redis, keepers: dict[str, PoolKeeper], is_active: Callable[[], bool]) -> None:
    reader = StreamReader(redis, streams.PROVIDER)
    is_started = is_sure = False
    while True:
        try:
            if not is_sure:
                await (reader.put_back() if is_started else reader.start())
                is_started = is_sure = True
            messages = await reader.read()
        except (RedisError, OSError) as error:
            is_sure = False  # it may come back without the end of its log
            log.warning("wishes unreadable", error=str(error), retry_s=BACKOFF_S)
            await asyncio.sleep(BACKOFF_S)
            continue
        for message in messages:
            if isinstance(message, Scale) and message.pool in keepers and is_active():
                keepers[message.pool].wish(message.num_nodes)
