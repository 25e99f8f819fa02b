"""Which operators to cut, and into how many parts, so that offloaded attention waits little (Weaver, ATC'25, §4.2).

Algorithm 1. What a wait is: `gpu_node.graph.passes.offload.poll_wait`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from gpu_node.graph.passes.offload.split import SplitPlan, is_splittable
from gpu_node.graph.program import Program

MAX_PARTS = 64
"""Of one operator; each part costs a barrier of its own."""


def splittable(program: Program) -> list[bool]:
    """Which operators of a program can be cut."""
    return [is_splittable(operator) for operator in program.operators]


def plan_splits(
    may_split: Sequence[bool], durations_s: Sequence[float], slack_s: float, most_delay_s: float
) -> SplitPlan:
    """Halve the longest operator that can be cut until W is small enough, or nothing longer than the slack can be cut.

    ``may_split``, ``durations_s``: of each operator, the latter whole. ``slack_s``: K - N, at least 0.
    ``most_delay_s``: of W (equation 3), for one task.
    """
    assert len(durations_s) == len(may_split)
    assert slack_s >= 0
    num_parts = [1] * len(durations_s)
    longest = [(-one, index) for index, one in enumerate(durations_s) if may_split[index]]
    heapq.heapify(longest)
    excess = sum(max(one - slack_s, 0.0) ** 2 for one in durations_s)
    allowed = 2 * sum(durations_s) * most_delay_s
    while excess > allowed and longest and -longest[0][0] > slack_s:
        part_s, index = -longest[0][0], longest[0][1]
        before = num_parts[index] * (part_s - slack_s) ** 2
        num_parts[index] *= 2
        after = num_parts[index] * max(part_s / 2 - slack_s, 0.0) ** 2
        excess += after - before
        if num_parts[index] < MAX_PARTS:
            heapq.heapreplace(longest, (-part_s / 2, index))
        else:
            heapq.heappop(longest)
    return {index: parts for index, parts in enumerate(num_parts) if parts > 1}
