"""What keys have left for all gateways, as Redis keeps it: the one owner of it is the script (`scripts.TELL_RATES`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.tenants.rates import DueRate
from gateway.tenants.shared_bucket import ADVANCE_S, HeardRate, Telling
from shared.bus import scripts, streams
from shared.bus.system_writes import RunsScripts

# Of an advance in Redis: longer than its process uses it, however long a telling is on its way. When a process dies, a
# part of a bucket is out of reach for so long.
KEPT_ADVANCE_MS = int(3 * ADVANCE_S * 1000)


class TellsRates(Protocol):
    """Knows what other processes have taken."""

    async def tell(self, told: Sequence[tuple[DueRate, Telling]]) -> list[HeardRate]:
        """What is heard of each. `RedisError` or `OSError` where it cannot be said whether it was told."""


class KeptRates:
    """One process's way to it."""

    def __init__(self, redis: RunsScripts, process: str) -> None:
        self._script = redis.register_script(scripts.TELL_RATES)
        self._process = process

    async def tell(self, told: Sequence[tuple[DueRate, Telling]]) -> list[HeardRate]:
        """As `TellsRates.tell`, in one step."""
        keys = [streams.rate(due.what, due.bucket.per_minute, due.key_id.hex()) for due, _ in told]
        args: list[str | int] = [self._process, KEPT_ADVANCE_MS, streams.RATE_SPARE_S, streams.MAX_RATE_TTL_S]
        for due, telling in told:
            args += [due.bucket.per_minute, repr(telling.taken), repr(telling.level), repr(telling.keeps)]
            args.append(int(telling.wants_advance))
        return [HeardRate(float(free), float(advance)) for free, advance in await self._script(keys=keys, args=args)]
