"""What is done in the next rounds of the event loop, in one callback each: one for each thing costs more than most do.

A round does a few of them, in the order in which they came, so that others have their turn: whatever makes a request
go on, from its header to its first token, waits for the round that runs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from gateway.inflight.coalescing import Coalescing

Due = Callable[[float], None]
"""Does it, and never raises; it is told the time at which its round has begun."""

DUE_A_ROUND = 16  # tokens written to as many clients: a third of a millisecond; a round itself takes about one µs


class Rounds:
    """Collects what is to be done. It is bounded by its callers: each has one thing due at a time, and its last."""

    def __init__(self, coalescing: Coalescing, worked_s: Callable[[], float] = time.thread_time) -> None:
        """``worked_s``: processor time of the loop's thread, in seconds."""
        self._due: deque[Due] = deque()
        self._held: list[Due] = []
        self._coalescing = coalescing
        self._worked_s = worked_s
        self.num_held = 0
        """Things that were held until later ones had come, since the process began."""

    def add(self, due: Due, *, may_wait: bool) -> None:
        """Do this in the next round, or in one soon behind it; later, where it may wait and the core is full."""
        if may_wait and (wait_s := self._coalescing.wait_s):
            if not self._held:
                asyncio.get_running_loop().call_later(wait_s, self._release)
            self._held.append(due)
            return
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin)
        self._due.append(due)

    def _release(self) -> None:
        held, self._held = self._held, []
        self.num_held += len(held)
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin)
        self._due.extend(held)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        round_ = [self._due.popleft() for _ in range(min(len(self._due), DUE_A_ROUND))]
        if self._due:
            loop.call_soon(self._begin)
        now = loop.time()
        if self._coalescing.is_due(now):
            self._coalescing.look(now, self._worked_s())
        for one in round_:
            one(now)
