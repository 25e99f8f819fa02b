"""Keys are read again when their file has changed. A file that is broken changes nothing, and is complained about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.http.context import CONTEXT, KEYS
from gateway.tenants.auth import KeyRing
from gateway.tenants.keys import Keys
from shared.config.config import keys_file, reload_keys
from shared.config.reading.file_watch import FileWatch
from shared.config.reading.files import ConfigError
from shared.config.services.clients import ApiKey
from shared.service.background.tasks import Supervised
from shared.service.file_looks import next_look

_log = structlog.get_logger(__name__)


class KeyMetrics:
    """What is seen of the keys."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reloads = Counter(
            "treadle_key_reloads", "Times that the keys' file was read again", ["outcome"], registry=registry
        )
        self.revoked = Counter(
            "treadle_revoked_requests", "Requests that ended because their key was revoked", registry=registry
        )
        self.stale = Gauge(
            "treadle_keys_stale", "1 while the keys' file cannot be used and older keys hold", registry=registry
        )


class KeyWatch:
    """Keeps `Keys` as its file has them."""

    def __init__(
        self, path: Path, read: Callable[[], list[ApiKey]], keys: Keys, metrics: KeyMetrics, num_processes: int = 1
    ) -> None:
        """``read`` answers what stands in the file; `ConfigError` says why it cannot be used."""
        self._file = FileWatch(path)
        self._read = read
        self._keys = keys
        self._metrics = metrics
        self._num_processes = num_processes

    async def run(self) -> None:
        """Look again and again, for ever. What was read at start-up is read once more, in case it has changed since."""
        while True:
            await self.look()
            await next_look(self._file, is_retry=False)

    async def look(self) -> None:
        """Read the file if it has changed and stood still since; one that cannot be used is read at each look."""
        if not await asyncio.to_thread(self._file.must_be_read):
            return
        problem, ring = "", self._keys.ring
        try:
            ring = KeyRing(await asyncio.to_thread(self._read), self._num_processes)
        except ConfigError as error:
            problem = str(error)
        if not await asyncio.to_thread(self._file.is_still):
            return  # it has changed meanwhile: it is unknown what was read
        if problem:
            self._complain(problem)
        else:
            self._file.settle()
            self._adopt(ring)

    def _adopt(self, ring: KeyRing) -> None:
        is_news = ring != self._keys.ring
        num_revoked = self._keys.replace(ring)
        self._metrics.revoked.inc(num_revoked)
        if is_news or self._keys.problem:
            self._metrics.reloads.labels("ok").inc()
            _log.info("keys_reloaded", file=str(self._file.path), num_keys=ring.num_keys, num_revoked=num_revoked)
        self._keys.problem = ""
        self._metrics.stale.set(0)

    def _complain(self, problem: str) -> None:
        if problem != self._keys.problem:
            self._metrics.reloads.labels("failed").inc()
            _log.error("keys_not_reloaded", problem=problem, num_keys=self._keys.ring.num_keys)
        self._keys.problem = problem
        self._metrics.stale.set(1)


@asynccontextmanager
async def watching_keys(
    app: web.Application, on_failure: Callable[[], None], num_processes: int = 1
) -> AsyncIterator[None]:
    """Inside, the application's keys are as their file has them, where they have one.

    ``on_failure`` has the process leave, as `Supervised.until_left` says. ``num_processes`` share each key's limit.
    """
    path, config = keys_file(), app[CONTEXT].config
    if path is None:
        yield
        return
    watch = KeyWatch(path, lambda: reload_keys(config), app[KEYS], KeyMetrics(app[CONTEXT].registry), num_processes)
    supervised = Supervised()
    async with supervised.until_left(on_failure):
        supervised.start("the watch over the keys", watch.run())
        yield
