"""The promise with which a request of a batch is sent: what is left of the window, in few different numbers.

The queue keeps requests of one promise in one group (QLM, §5). Seconds that are left would make a group of each
request, so they are rounded down to a ladder with `STEPS_A_DOUBLING` steps: a day has 66 of them down to a second, and
a request is promised a sixth less than there is, at most.
"""

from __future__ import annotations

import math

from shared.messages.requests.slo import MAX_START_S

STEPS_A_DOUBLING = 4
LEAST_S = 1.0


def promised_s(left_s: float) -> float:
    """The deadline, in seconds, of a request whose batch has ``left_s`` until the end of its window."""
    if left_s <= LEAST_S:
        return LEAST_S
    step = math.floor(STEPS_A_DOUBLING * math.log2(min(left_s, MAX_START_S)))
    rung_s: float = 2.0 ** (step / STEPS_A_DOUBLING)
    return math.floor(rung_s * 1000) / 1000
