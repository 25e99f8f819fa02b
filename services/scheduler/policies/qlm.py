"""QLM's global scheduler (SoCC'24 §6): the order of least cost; exact where that is quick, else the best found."""

from __future__ import annotations

from services.scheduler.anytime import search
from services.scheduler.cost import total_cost
from services.scheduler.current import current_order
from services.scheduler.exact import is_small, solve_exactly
from services.scheduler.instance import Instance, Queues
from shared.messages import PlacementProblem

LEAST_GAIN_S = 0.1  # a plan that gains less than this a request, as waiting time, is not worth the change


def place(problem: PlacementProblem, instance: Instance) -> Queues:
    """The best order; the current one, completed by what is new, where that is as good but for next to nothing.

    Predictions change a little all the time: without this, two orders of about the same cost would take turns.
    """
    found = search(instance, current_order(instance, problem.queues))
    best = solve_exactly(instance, found.best) if is_small(instance) else found.best
    num_requests = sum(group.num_waiting + group.num_running for group in instance.groups)
    gain = total_cost(instance, found.current) - total_cost(instance, best)
    return best if gain > LEAST_GAIN_S * num_requests else found.current
