"""Which request goes on when: a few in one round of the event loop, the tenants by turns, each in the order of coming.

A request is parsed, checked and tokenised in one go, some half a millisecond of it. A crowd that comes in one instant
would be prepared in one round of the loop, which would take seconds, and in which no other is answered: no stream gets
its tokens, no probe its answer. So there are two: at the entrance it is decided which requests find a place (the others
are refused there), and behind the body those that have one are prepared. A tenant's crowd waits behind itself: another
tenant's request is the next but one.
"""

from __future__ import annotations

import asyncio
from collections import deque

from aiohttp import web

# In one round of the loop, which so takes some 20 ms for requests that come in, and 5 ms for those that are prepared.
ENTRIES_A_ROUND = 128
REQUESTS_A_ROUND = 8
AMONG_NEWCOMERS = 8  # a round in which connections are taken lets one part in so many through: they may hold a probe


class Turnstile:
    """Lets requests pass. One that waits costs a future; one that is cancelled while waiting takes no other's turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_left = limit
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by tenant; the next one comes first
        self._is_round_due = False
        self._makes_way = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait for their turn."""
        return sum(not one.done() for queue in self._waiting.values() for one in queue)

    async def turn(self, tenant: str) -> None:
        """Return when it is the caller's turn: at once, while this round has turns and none waits."""
        if self._num_left and not self._waiting:
            self._num_left -= 1
            self._begin_round_soon()
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        await mine

    def make_way(self) -> None:
        """Connections are being taken: let fewer through in the next round, so that its end comes soon."""
        self._makes_way = True
        self._begin_round_soon()

    def _begin_round_soon(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_round_due = False
        self._num_left = max(1, self._limit // AMONG_NEWCOMERS) if self._makes_way else self._limit
        self._makes_way = False
        while self._waiting and self._num_left:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            one = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind the others
            if not one.done():
                one.set_result(None)
                self._num_left -= 1
        if self._num_left < self._limit:
            self._begin_round_soon()


ENTRANCE = web.AppKey("ENTRANCE", Turnstile)
TURNSTILE = web.AppKey("TURNSTILE", Turnstile)
