"""So many at a time, the tenants by turns: a tenant's crowd waits behind itself, and another tenant is the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.tenants.waiting_tenants import WaitingTenants


class TenantTurns:
    """Of one event loop. A tenant that is cancelled while it waits takes no other's turn."""

    def __init__(self, num_places: int) -> None:
        self._num_left = num_places
        self._waiting = WaitingTenants()

    @asynccontextmanager
    async def one(self, tenant: str) -> AsyncIterator[None]:
        """Inside, a place is the tenant's."""
        await self.take(tenant)
        try:
            yield
        finally:
            self.give_back()

    async def take(self, tenant: str) -> None:
        """Return when it is the tenant's turn; it has a place then, until that is given back."""
        if self._num_left and self._waiting.is_empty:
            self._num_left -= 1
            return
        mine = self._waiting.add(tenant)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given the turn in the same instant
                self.give_back()
            raise

    def give_back(self) -> None:
        """A place is free."""
        self._num_left += 1
        self._num_left -= self._waiting.let_through(self._num_left)
