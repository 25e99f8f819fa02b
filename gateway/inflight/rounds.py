"""What is done in the next round of the event loop, in one callback: one for each costs more than most of it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Due = Callable[[float], None]
"""Does it, and never raises; it is told the time at which its round has begun."""


class Rounds:
    """Collects during one round what the next one does, in the order in which it came."""

    def __init__(self) -> None:
        self._due: list[Due] = []

    def add(self, due: Due) -> None:
        """Do this in the next round."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin)
        self._due.append(due)

    def _begin(self) -> None:
        due, self._due = self._due, []
        now = asyncio.get_running_loop().time()
        for one in due:
            one(now)
