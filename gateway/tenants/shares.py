"""What may be held of one thing (requests, bytes) by each of several tenants: shared by weight, while others ask.

A tenant below its fair share may take what is free; one that would be above it, only as long as a reserve stays free. A
share is ``limit * weight / weights`` of all that hold something or asked of late, and of one newcomer where there may
be one. So a tenant that is alone may have all but the reserve, which lets another one in at once; what it holds above
its share comes back as its requests end, and goes to those below theirs. Nothing that is held is taken away.

Pure: time comes in with each call. Tenants are remembered while they hold something and for `ACTIVE_S` after they
asked; there are no more of them than the keys name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from shared.config.services.queue import TenantSpec

ACTIVE_S = 30.0  # a tenant that asked so lately is expected to ask again
RESERVE = 1 / 16  # of a limit: what others may have at once where one tenant has all the rest
DEFAULT_WEIGHT = TenantSpec().weight


class ShareRefusal(enum.Enum):
    """Why something may not be taken."""

    FULL = "full"
    """It is not free."""
    SHARE = "share"
    """The tenant would have more than its share, and what is free is left for others."""


@dataclass(slots=True)
class Holding:
    """What a tenant has."""

    num_held: int = 0
    asked_s: float = 0.0


class Shares:
    """One limit and which tenant has how much of it."""

    def __init__(self, limit: int, reserve: int, weights: Mapping[str, float]) -> None:
        """``reserve``: what stays free of tenants above their share, where there may be others."""
        assert 0 <= reserve < limit
        self.limit = limit
        self._reserve = reserve
        self._weights = weights
        self._holdings: dict[str, Holding] = {}
        self._num_held = 0

    @property
    def num_held(self) -> int:
        """By all together."""
        return self._num_held

    def held_by(self, tenant: str) -> int:
        """By one."""
        holding = self._holdings.get(tenant)
        return holding.num_held if holding is not None else 0

    def share_of(self, tenant: str, now: float, *, has_others: bool) -> float:
        """What is the tenant's while others ask. ``has_others``: there may be other tenants."""
        self._forget(now)
        if not has_others:
            return self.limit
        weights = sum(map(self._weight, self._holdings.keys() | {tenant})) + DEFAULT_WEIGHT
        return self.limit * self._weight(tenant) / weights

    def most(self, tenant: str, *, has_others: bool) -> int:
        """What the tenant may have where no other has or asks for anything."""
        if not has_others:
            return self.limit
        weight = self._weight(tenant)
        return max(self.limit - self._reserve, int(self.limit * weight / (weight + DEFAULT_WEIGHT)))

    def refusal(self, tenant: str, num: int, now: float, *, has_others: bool) -> ShareRefusal | None:
        """Why the tenant may not take so much now; None if it may. Notes that it asked."""
        share = self.share_of(tenant, now, has_others=has_others)
        self._holdings.setdefault(tenant, Holding()).asked_s = now
        num_left = self.limit - self._num_held - num
        if num_left < 0:
            return ShareRefusal.FULL
        if has_others and num_left < self._reserve and self.held_by(tenant) + num > share:
            return ShareRefusal.SHARE
        return None

    def take(self, tenant: str, num: int, now: float) -> None:
        """It has so much more."""
        holding = self._holdings.setdefault(tenant, Holding(asked_s=now))
        holding.num_held += num
        self._num_held += num
        assert self._num_held <= self.limit, "taken without asking"

    def give_back(self, tenant: str, num: int) -> None:
        """It has so much less."""
        holding = self._holdings[tenant]
        holding.num_held -= num
        self._num_held -= num
        assert holding.num_held >= 0, "more is given back than was taken"

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, DEFAULT_WEIGHT)

    def _forget(self, now: float) -> None:
        gone = [
            tenant
            for tenant, holding in self._holdings.items()
            if not holding.num_held and now - holding.asked_s > ACTIVE_S
        ]
        for tenant in gone:
            del self._holdings[tenant]


def divided(limit: int, num_processes: int) -> int:
    """What each of several processes may hold of a limit that is meant for all; at least one."""
    return max(1, limit // num_processes)
