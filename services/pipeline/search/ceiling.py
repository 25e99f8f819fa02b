"""What no pipeline of a layer can be faster than: each lane's time and all lanes' parts of the device, no order at all.

A lane's operators take ``sum(D / P(R))``, at most a period T; all together use ``sum(R D / P(R))`` of the device, at
most T as well (both hold for any schedule whose R add up to 1 at most). Each lane may mix parts of the device, so this
is a relaxation of stage II (NanoFlow, OSDI'25, §4.1.3) without dependencies: what a search comes to lies between it and
the sequential layer, and what the paper measures can be no better unless its tables say less than its devices do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.pipeline.operators.layer import LayerLayout, NanoOperator, split
from services.pipeline.operators.setting import Setting
from shared.pipelines.lanes import Interference, ResourceLane

_STEPS = 60
"""Halvings."""


def least_period_s(parts: Sequence[NanoOperator], interference: Interference) -> float:
    """The least T with ``sum over lanes of the least use of the device within T <= T``; found by bisection."""
    best_s = {lane: sum(part.best_s for part in parts if part.lane is lane) for lane in ResourceLane}
    low, high = max(best_s.values()), sum(best_s.values())
    for _ in range(_STEPS):
        middle = (low + high) / 2
        used_s = sum(
            busy_s * _least_use(lane, middle / busy_s, interference) for lane, busy_s in best_s.items() if busy_s > 0
        )
        low, high = (low, middle) if used_s <= middle else (middle, high)
    return high


def ceilings(setting: Setting) -> tuple[float, float]:
    """Of a layer whose operators are whole, which none beats, and of one in which each comes in two parts."""
    operators = setting.operators(LayerLayout(setting.batch.num_rows))
    middle = setting.batch.num_rows // 2
    halves = {one.name: (middle,) for one in operators if one.first_row < middle < one.end_row}
    whole_s, halves_s = (least_period_s(split(operators, cuts), setting.interference) for cuts in ({}, halves))
    return whole_s, halves_s


def _least_use(lane: ResourceLane, slowness: float, interference: Interference) -> float:
    """R / P of the best mix of two parts of the device whose 1 / P is ``slowness`` at most; infinite if none is."""
    points = []
    for share in interference.shares:
        performance = interference.performance(lane, share)
        points.append((1 / performance, share / performance))
    points.sort(reverse=True)
    fitting = [use for slow, use in points if slow <= slowness]
    least = min(fitting, default=math.inf)
    for slow, use in points:
        for fast, fast_use in points:
            if fast < slowness < slow:
                part = (slowness - fast) / (slow - fast)
                least = min(least, part * use + (1 - part) * fast_use)
    return least
