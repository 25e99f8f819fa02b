"""How long a queue has one wait that is only known for a while, whatever it is busy; and who is later than promised.

A stationary wait would be infinite from a load of X = 1 on, and is not reached soon below it. What a queue comes to
within `HORIZON_S`, T, is (Kimber and Hollis, TRRL LR 909, 1979; with capacity c) ::

    T / 4 * ((X - 1) + √((X - 1)² + 8 κ X / (c T)))        κ = E[S²] / 2 E[S]²

which is Pollaczek and Khinchine's κ X / c (1 - X) below 1 for long T, and T (X - 1) / 2 above. Several servers are all
busy less often: κ X^(√(2 (p + 1)) - 1) stands for κ (Sakasegawa, AISM 29, 1977).
"""

from __future__ import annotations

import math
from typing import NamedTuple

HORIZON_S = 60.0
"""A load is taken to last as long as what it is known by (`services.queue_manager.learnt.arrivals.MEMORY_S`)."""


class QueueWait(NamedTuple):
    """Seconds until it is one's turn."""

    mean_s: float
    std_s: float


NONE = QueueWait(0.0, 0.0)


def wait_s(busy: float, per_s: float, kappa: float) -> float:
    """What a queue that is ``busy`` for so much of its capacity ``per_s`` has one wait on average in `HORIZON_S`."""
    over = busy - 1
    return HORIZON_S / 4 * (over + math.sqrt(over**2 + 8 * kappa * busy / (per_s * HORIZON_S)))


def queue_wait(busy: float, per_s: float, kappa: float, servers: float) -> QueueWait:
    """The same in front of so many servers, and how it varies: 0 with 1 - X, else exponential."""
    if busy <= 0.0 or math.isinf(per_s):
        return NONE
    seldom = min(1.0, busy) ** (math.sqrt(2 * (servers + 1)) - 1)
    mean_s = wait_s(busy, per_s, kappa * seldom)
    return QueueWait(mean_s, mean_s * math.sqrt(2 / min(1.0, busy) - 1))


def late_share(mean: float, std: float, limit: float) -> float:
    """P(X > limit) of a normal X."""
    if math.isinf(limit):
        return 0.0
    if std <= 0.0:
        return float(mean > limit)
    return math.erfc((limit - mean) / std / math.sqrt(2)) / 2
