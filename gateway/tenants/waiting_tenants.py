"""Requests that wait, by tenant: the tenants by turns, each tenant's in the order of their coming."""

from __future__ import annotations

import asyncio
from collections import deque


class WaitingTenants:
    """A tenant's crowd waits behind itself: another tenant's request is the next but one."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by tenant; the next one comes first

    @property
    def is_empty(self) -> bool:
        """None waits, not even one that was cancelled and whose turn has not come."""
        return not self._waiting

    @property
    def num_waiting(self) -> int:
        """Those that were not cancelled meanwhile."""
        return sum(not one.done() for queue in self._waiting.values() for one in queue)

    def add(self, tenant: str) -> asyncio.Future[None]:
        """What is done when it is this request's turn; cancelled, it takes no other's turn."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        return mine

    def let_through(self, most: int) -> int:
        """The turn of so many at most; how many there were."""
        num_let = 0
        while self._waiting and num_let < most:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            one = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind the others
            if not one.done():
                one.set_result(None)
                num_let += 1
        return num_let
