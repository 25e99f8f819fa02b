"""The anytime method: from the queues as they are and from nothing, each improved; the better wins."""

from __future__ import annotations

from dataclasses import dataclass

from services.scheduler.solving.methods.greedy import insert_all
from services.scheduler.solving.methods.layout import Budget, Layout
from services.scheduler.solving.methods.search import improve
from services.scheduler.solving.problem.instance import Instance, Queues

NUM_VISITS = 600_000  # of groups in trial queues, at most: 80 nodes x 400 groups take under a second on one core
VISITS_A_GROUP = 3_000  # a few groups are not worth that second: an urgent request may wait for the plan
LEAST_VISITS = 20_000  # with these the smallest instances are searched to the end


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to."""

    current: Queues
    """The order that it started from, with a place for the groups that had none."""
    best: Queues
    """Costs no more than ``current`` and than what greedy insertion gives."""


def search(instance: Instance, queues: Queues, num_visits: int = NUM_VISITS) -> SearchResult:
    """Improve ``queues``, an order that keeps the rules but may leave groups out, and an order made from nothing.

    Each has half of the visits, and the second what the first has left. There are no more than ``num_visits``, and
    fewer where there are few groups.
    """
    everything = range(len(instance.groups))
    num_visits = min(num_visits, LEAST_VISITS + VISITS_A_GROUP * len(everything))
    is_warm = any(queues)
    warm = Layout(instance, Budget(num_visits // 2 if is_warm else num_visits))
    for node, queue in enumerate(queues):
        warm.replace(node, queue)
    insert_all(warm, [group for group in everything if group not in warm.node_of])
    current = warm.copy()
    improve(warm)
    if not is_warm:
        return SearchResult(current, warm.queues)
    fresh = Layout(instance, Budget(num_visits // 2 + max(0, warm.budget.num_visits)))
    insert_all(fresh, everything)
    improve(fresh)
    return SearchResult(current, min(warm, fresh, key=lambda layout: layout.cost).queues)
