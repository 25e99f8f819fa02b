"""`scripts.TELL_RATES` in plain Python and on a clock of the test's: what it does is told by tests of the real one."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.tenants.bucket import MINUTE_S
from gateway.tenants.kept_rates import KEPT_ADVANCE_MS
from gateway.tenants.rates import DueRate
from gateway.tenants.shared_bucket import HeardRate, Telling


class KeptBucket:
    """One bucket, for processes that are named by numbers."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.level = float(per_minute)
        self._told_s = 0.0
        self._advances: dict[int, tuple[float, float]] = {}

    def tell(self, process: int, telling: Telling, now: float) -> HeardRate:
        passed_s, self._told_s = now - self._told_s, now
        self.level = min(self.per_minute, self.level + passed_s * self.per_minute / MINUTE_S) - telling.taken
        self._advances = {
            other: (amount, given_s)
            for other, (amount, given_s) in self._advances.items()
            if other != process and now - given_s <= KEPT_ADVANCE_MS / 1000
        }
        free = self.level - sum(amount for amount, _ in self._advances.values())
        advance = max(telling.keeps, free / 2, 0.0) if telling.wants_advance else 0.0
        if advance:
            self._advances[process] = (advance, now)
        return HeardRate(free, advance)


class MemoryRates:
    """`TellsRates` that can be away, and says what was told."""

    def __init__(self) -> None:
        self.is_away = False
        self.heard = HeardRate(0.0, 0.0)
        self.told: list[list[tuple[str, Telling]]] = []

    async def tell(self, told: Sequence[tuple[DueRate, Telling]]) -> list[HeardRate]:
        if self.is_away:
            raise ConnectionError("away")
        self.told.append([(due.what, telling) for due, telling in told])
        return [self.heard for _ in told]
