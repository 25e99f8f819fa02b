"""When an engine that has just run out of work sees that no block was lost.

To look at 50,000 blocks takes some 60 ms, and a request that comes meanwhile waits for them. So the longer a look
takes, the seldomer it is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

SHARE = 0.001
"""Of all time, that may go into looks."""


class IdleCheck:
    """Looks at idle moments, the first one included."""

    def __init__(self, check: Callable[[], None], clock: Callable[[], float]) -> None:
        """``check`` asserts; ``clock`` measures how long it takes."""
        self._check = check
        self._clock = clock
        self._next_s = -inf

    def hear_idle(self) -> None:
        """Nothing is left to do at this moment."""
        began_s = self._clock()
        if began_s < self._next_s:
            return
        self._check()
        ended_s = self._clock()
        self._next_s = ended_s + (ended_s - began_s) / SHARE
