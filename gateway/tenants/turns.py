"""So many at a time, the tenants by turns: whose crowd it is waits behind itself, and another tenant is the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TenantTurns:
    """Of one event loop. A tenant that is cancelled while it waits takes nobody's turn."""

    def __init__(self, num_places: int) -> None:
        self._num_left = num_places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by tenant; whose turn it is comes first

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
        if self._num_left and not self._waiting:
            self._num_left -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given the turn in the same instant
                self.give_back()
            raise

    def give_back(self) -> None:
        """A place is free."""
        self._num_left += 1
        while self._waiting and self._num_left:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            one = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind the others
            if not one.done():
                one.set_result(None)
                self._num_left -= 1
