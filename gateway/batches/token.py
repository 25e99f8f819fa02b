"""The secret by which gateway and batch service know each other, as Redis has it."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable

import structlog
from redis.exceptions import RedisError

READ_AGAIN_S = 1.0  # a wrong secret asks Redis no more often

ReadToken = Callable[[], Awaitable[str | None]]

_log = structlog.get_logger(__name__)


class BatchToken:
    """Read when it is needed first, and again when it turns out to be another one."""

    def __init__(self, read: ReadToken, clock: Callable[[], float]) -> None:
        """``read`` answers what Redis has; `RedisError` or OSError where it does not answer."""
        self._read = read
        self._clock = clock
        self._known: str | None = None
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def current(self) -> str | None:
        """The secret; None while there is none."""
        if self._known is None:
            await self._look()
        return self._known

    async def is_it(self, given: str) -> bool:
        """Whether this is the secret."""
        if self._equals(given):
            return True
        await self._look()
        return self._equals(given)

    async def renew(self) -> None:
        """The service says that it is another one."""
        await self._look()

    def _equals(self, given: str) -> bool:
        known = self._known
        return known is not None and hmac.compare_digest(known.encode(), given.encode(errors="surrogateescape"))

    async def _look(self) -> None:
        async with self._reading:  # a call that comes meanwhile waits for what is read
            if self._read_s is not None and self._clock() - self._read_s < READ_AGAIN_S:
                return
            try:
                self._known = await self._read() or self._known
            except (RedisError, OSError) as error:
                _log.warning("batch_token_unread", problem=str(error))
            self._read_s = self._clock()
