"""What is done in the next rounds of the event loop, in one callback each: one for each thing costs more than most do.

A round does a few of them, in the order in which they came, so that others have their turn: whatever makes a request
go on, from its header to its first token, waits for the round that runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Due = Callable[[float], None]
"""Does it, and never raises; it is told the time at which its round has begun."""

DUE_A_ROUND = 16  # tokens written to as many clients: a third of a millisecond; a round itself takes about one µs


class Rounds:
    """Collects what is to be done. It is bounded by those who add: each has one thing due at a time."""

    def __init__(self) -> None:
        self._due: deque[Due] = deque()

    def add(self, due: Due) -> None:
        """Do this in the next round, or in one soon behind it."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin)
        self._due.append(due)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        round_ = [self._due.popleft() for _ in range(min(len(self._due), DUE_A_ROUND))]
        if self._due:
            loop.call_soon(self._begin)
        now = loop.time()
        for one in round_:
            one(now)
