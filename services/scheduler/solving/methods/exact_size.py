"""Which problems are solved exactly; without the solver, whose package would take a fifth of the start of a service.

The scheduler that decides nothing itself, since a process beside it solves, never needs it.
"""

from __future__ import annotations

from services.scheduler.solving.problem.instance import Instance

MAX_GROUPS = (
    4  # up to here, and with so many choices, HiGHS proves the optimum in 0.2 s on average and in 0.5 s at most
)
MAX_CHOICES = 48  # slots x groups, over all nodes
MAX_HORIZON_S = 1e8
"""Three years. Beyond, the prices of lateness are numbers that HiGHS refuses; one node that tells of steps of a day is
enough for that, and the search needs no such numbers."""


def is_small(instance: Instance) -> bool:
    """Whether the program can be written, and is solved to its end in time."""
    placed = [group for group in instance.groups if group.places]
    is_short = 0 < len(placed) <= MAX_GROUPS and sum(len(group.places) for group in placed) * len(placed) <= MAX_CHOICES
    return is_short and horizon_s(instance) <= MAX_HORIZON_S


def horizon_s(instance: Instance) -> float:
    """No time of a sensible order is later: each group once, with everything that can come before it."""
    total_s = sum(node.ready_s + node.yield_s + sum(node.rest_s.values()) for node in instance.nodes)
    for number, group in enumerate(instance.groups):
        total_s += max(
            (
                node.work_s[number] + node.setup_s[number] + node.tail_s[number] + node.load_s[group.model]
                for node in instance.nodes
            ),
            default=0.0,
        )
    return total_s
