"""Keys are read again when their file has changed. A file that is broken changes nothing, and is complained about.

What tells a change is the file behind all links: Kubernetes renews a mounted Secret by turning a link to another
directory, so the path stays and the inode changes. A change holds once two looks in a row have found the same file: one
that is written in place, piece by piece, would else be read with a part of its keys, and the rest be revoked. A file
is looked at in a thread, for it may lie on a slow disk.
"""

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
from shared.config.config import ApiKey, keys_file, reload_keys
from shared.config.reading.files import ConfigError
from shared.service.tasks import Supervised

POLL_S = 1.0  # a revoked key ends within 5 s: two looks, the reading and the end of its answers take less than that

_log = structlog.get_logger(__name__)

Signature = tuple[int, int, int, int]
"""Device, inode, size and time of change of a file."""


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
        self._path = path
        self._read = read
        self._keys = keys
        self._metrics = metrics
        self._num_processes = num_processes
        self._looked: Signature | None = None
        """As the last look found the file."""
        self._seen: Signature | None = None
        """As it was when it was read."""

    async def run(self) -> None:
        """Look every `POLL_S`, for ever. What was read at start-up is read once more, in case it has changed since."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Read the file if it is another one than the one that was read last, and has stood still since the last look.

        One that cannot be used is read at each look: who lets it be read, or its folder, does not change the file.
        """
        before, self._looked = self._looked, await asyncio.to_thread(_signature, self._path)
        if self._looked != before or (self._looked == self._seen and self._seen is not None):
            return
        problem, ring = "", self._keys.ring
        try:
            ring = KeyRing(await asyncio.to_thread(self._read), self._num_processes)
        except ConfigError as error:
            problem = str(error)
        if await asyncio.to_thread(_signature, self._path) != before:
            return  # it has changed meanwhile: nobody knows what was read
        self._seen = None if problem else before
        if problem:
            self._complain(problem)
        else:
            self._adopt(ring)

    def _adopt(self, ring: KeyRing) -> None:
        is_news = ring != self._keys.ring
        num_revoked = self._keys.replace(ring)
        self._metrics.revoked.inc(num_revoked)
        if is_news or self._keys.problem:
            self._metrics.reloads.labels("ok").inc()
            _log.info("keys_reloaded", file=str(self._path), num_keys=ring.num_keys, num_revoked=num_revoked)
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


def _signature(path: Path) -> Signature | None:
    """None where there is no such file, or it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
