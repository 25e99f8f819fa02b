"""QLM's global scheduler (SoCC'24 §6): the order of least cost; exact where that is quick, else the best found."""

from __future__ import annotations

from services.scheduler.anytime import NUM_VISITS, search
from services.scheduler.cost import least_cost, total_cost
from services.scheduler.current import current_order
from services.scheduler.exact import is_small, solve_exactly
from services.scheduler.instance import Instance, Queues
from shared.placement import PlacementProblem

LEAST_GAIN_S = 0.1  # a plan that gains less than this a request, as waiting time, is not worth the change
PROVEN_SHARE = 1e-6  # an order that costs no more than this above the least is the best there is


def place(problem: PlacementProblem, instance: Instance, num_visits: int = NUM_VISITS) -> Queues:
    """The best order; the current one, completed by what is new, where that is as good but for next to nothing.

    ``num_visits`` bounds the search where it is not exact.

    Predictions change a little all the time: without this, two orders of about the same cost would take turns.
    """
    found = search(instance, current_order(instance, problem.queues), num_visits)
    best = found.best
    if is_small(instance) and total_cost(instance, best) > (1 + PROVEN_SHARE) * least_cost(instance):
        best = solve_exactly(instance, best).queues
    gain = total_cost(instance, found.current) - total_cost(instance, best)
    return best if gain > LEAST_GAIN_S * _num_affected(instance, found.current, best) else found.current


def _num_affected(instance: Instance, current: Queues, best: Queues) -> int:
    """Requests in queues that would change."""
    changed = [group for one, other in zip(current, best, strict=True) if one != other for group in other]
    return sum(instance.groups[group].num_waiting + instance.groups[group].num_running for group in changed)
