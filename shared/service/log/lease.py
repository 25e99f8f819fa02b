"""Who leads a service: one instance at a time, named in Redis with a fencing token.

A leader shows signs of life: each commit is one, and `LeaseKeeper` gives more while it is busy otherwise. A standby
takes over when it has watched the same sign for as long as the leader asked for, by its own monotonic clock: no
wall clock decides, and no leader that lives is deposed for doing something long.
"""

from __future__ import annotations

import time
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.bus import scripts, streams
from shared.errors import OperatorError

LEASE_S = 3.0  # a standby takes over this long after the active instance fell silent
RENEW_S = LEASE_S / 4
# At which a state is read, and written, at least, also on a busy machine: both keep all threads of the process waiting.
READ_BYTES_PER_S = 20_000_000
WRITE_BYTES_PER_S = 100_000_000
LEASE_TTL_MS = 3_600_000  # older versions wait until the key expires; a leader that lives renews it


class FencedError(OperatorError):
    """Another instance leads now; what this one decided was refused."""


def hold_s(num_bytes: int, bytes_per_s: int) -> float:
    """How long a standby is to wait for the next sign of a leader that reads or writes so much of a state at once."""
    return LEASE_S + num_bytes / bytes_per_s


class Lease:
    """One instance's side of it."""

    def __init__(self, redis: Redis, service: str, instance: str) -> None:
        self.service = service
        self.instance = instance
        self.holder = ""
        """``instance#token`` of this term; empty before the first."""
        self._redis = redis
        self._acquire = redis.register_script(scripts.ACQUIRE)
        self._renew = redis.register_script(scripts.RENEW)
        self._release = redis.register_script(scripts.RELEASE)
        self._sign = ""
        self._watched_s = 0.0
        self._asked_at_s = 0.0
        self._patience_s = LEASE_S

    @property
    def keys(self) -> list[str]:
        """What every fenced script begins with."""
        return [streams.lease(self.service)]

    @property
    def terms(self) -> list[str | int]:
        """The first arguments of scripts that renew it."""
        return [self.holder, LEASE_TTL_MS, int(LEASE_S * 1000)]

    async def acquire(self) -> bool:
        """Try to lead; False while another instance does. Asked again every RENEW_S: that is how it is watched.

        Time in which Redis did not answer is not the leader's silence: the leader could not be heard either.
        """
        now_s = time.monotonic()
        self._watched_s += min(now_s - self._asked_at_s, 2 * RENEW_S)
        self._asked_at_s = now_s
        keys = [streams.lease(self.service), streams.fence(self.service), streams.beat(self.service)]
        watched = self._sign if self._watched_s >= self._patience_s else ""
        leads, text, hold_ms = await self._acquire(
            keys=keys, args=[self.instance, LEASE_TTL_MS, int(LEASE_S * 1000), watched]
        )
        if leads:
            self.holder, self._sign = text.decode(), ""
            return True
        if text.decode() != self._sign:
            self._sign, self._watched_s = text.decode(), 0.0
        self._patience_s = hold_ms / 1000
        return False

    async def renew(self, hold_s: float = LEASE_S) -> None:
        """Show a sign of life, and say how long the next may take; `FencedError` if another one leads by now."""
        keys = [streams.lease(self.service), streams.beat(self.service)]
        await self.fenced(self._renew, keys, [self.holder, LEASE_TTL_MS, int(hold_s * 1000)])

    async def release(self) -> None:
        """Give it back so that a standby need not wait."""
        await self._release(keys=[streams.lease(self.service)], args=[self.holder])

    async def leader(self) -> str:
        """Name of the instance that leads now, without its token; empty when there is none."""
        value: Any = await self._redis.get(streams.lease(self.service))
        return value.decode().rpartition("#")[0] if value else ""

    async def fenced(self, script: Any, keys: list[str], args: list[Any]) -> Any:
        """Run a script that refuses who does not lead; that becomes a `FencedError`."""
        try:
            return await script(keys=keys, args=args)
        except ResponseError as error:
            if "FENCED" in str(error):
                raise FencedError(f"{self.service}: another instance took the lease from {self.holder}") from error
            raise
