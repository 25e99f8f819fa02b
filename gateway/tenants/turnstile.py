"""Which request goes on when: a few in one round of the event loop, the tenants by turns, each in the order of coming.

A request is parsed, checked and tokenised in one go, some half a millisecond of it. A crowd that comes in one instant
would be prepared in one round of the loop, which would take seconds, and in which no other is answered: no stream gets
its tokens, no probe its answer. So there are two: at the entrance it is decided which requests find a place (the others
are refused there), and behind the body those that have one are prepared. A tenant's crowd waits behind itself: another
tenant's request is the next but one.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.tenants.waiting_tenants import WaitingTenants

# In one round of the loop, which so takes some 20 ms for requests that come in, and 5 ms for those that are prepared.
ENTRIES_A_ROUND = 128
REQUESTS_A_ROUND = 8
AMONG_NEWCOMERS = 8  # a round in which connections are taken lets one part in so many through: they may hold a probe


class Turnstile:
    """Lets requests pass. One that waits costs a future; one that is cancelled while waiting takes no other's turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_left = limit
        self._waiting = WaitingTenants()
        self._is_round_due = False
        self._makes_way = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._waiting.num_waiting

    async def turn(self, tenant: str) -> None:
        """Return when it is the caller's turn: at once, while this round has turns and none waits."""
        if self._num_left and self._waiting.is_empty:
            self._num_left -= 1
            self._begin_round_soon()
            return
        await self._waiting.add(tenant)

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
        self._num_left -= self._waiting.let_through(self._num_left)
        if self._num_left < self._limit:
            self._begin_round_soon()


ENTRANCE = web.AppKey("ENTRANCE", Turnstile)
TURNSTILE = web.AppKey("TURNSTILE", Turnstile)
