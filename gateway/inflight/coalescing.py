"""How long tokens wait for the next ones of their answers, so that a process whose core is full writes less often.

Half of what a streamed token costs a gateway is the kernel's `send`, which costs the same for five tokens. While the
core has time, each token goes out as it comes. Where it has none, tokens would wait anyhow, for whatever the loop does
before them; then it is better that those of one answer go out together, as one event. First tokens and last ones never
wait.
"""

from __future__ import annotations

LOOK_S = 0.05  # the share of time is that of at least so long
FIRST_WAIT_S = 0.0125
FULL_SHARE = 0.9
SPARE_SHARE = 0.6
"""Half the wait means twice the writes, and they are half of the work at most: no share below this comes to be above
`FULL_SHARE` by it."""


class Coalescing:
    """The wait that follows the share of its time for which the event loop has worked of late.

    It doubles in each `LOOK_S` in which the loop had no time to spare, and is halved where there is enough of it.
    """

    def __init__(self, max_wait_s: float) -> None:
        """``max_wait_s``: 0 where no token is to wait, ever."""
        self._max_wait_s = max_wait_s
        self._looked_s = 0.0
        self._worked_s = 0.0
        self.wait_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether to `look`: processor time is not asked for in every round of the loop."""
        return now_s - self._looked_s >= LOOK_S and self._max_wait_s > 0

    def look(self, now_s: float, worked_s: float) -> None:
        """``worked_s``: processor time that the loop's thread has taken since it began."""
        share = (worked_s - self._worked_s) / (now_s - self._looked_s)
        self._looked_s, self._worked_s = now_s, worked_s
        if share > FULL_SHARE:
            self.wait_s = min(max(2 * self.wait_s, FIRST_WAIT_S), self._max_wait_s)
        elif share < SPARE_SHARE:
            self.wait_s = self.wait_s / 2 if self.wait_s > FIRST_WAIT_S else 0.0
