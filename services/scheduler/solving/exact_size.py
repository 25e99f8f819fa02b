"""Which problems are solved exactly; without the solver, whose package would take a fifth of the start of a service.

The scheduler that decides nothing itself, since a process beside it solves, never needs it.
"""

from __future__ import annotations

from services.scheduler.solving.instance import Instance

MAX_GROUPS = (
    4  # up to here, and with so many choices, HiGHS proves the optimum in 0.2 s on average and in 0.5 s at most
)
MAX_CHOICES = 48  # slots x groups, over all nodes


def is_small(instance: Instance) -> bool:
    """Whether the program is solved to its end in time."""
    placed = [group for group in instance.groups if group.places]
    return 0 < len(placed) <= MAX_GROUPS and sum(len(group.places) for group in placed) * len(placed) <= MAX_CHOICES
