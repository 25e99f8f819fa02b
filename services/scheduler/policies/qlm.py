"""QLM's global scheduler (SoCC'24 §6): the order of least cost; exact where that is quick, else the best found."""

from __future__ import annotations

from services.scheduler.solving.methods.anytime import NUM_VISITS, search
from services.scheduler.solving.methods.exact_size import is_small
from services.scheduler.solving.methods.layout import ROUNDING
from services.scheduler.solving.problem.cost import group_costs, least_cost, total_cost
from services.scheduler.solving.problem.current import current_order
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.messages.nodes.placement import PlacementProblem

LEAST_NET_SHARE = 0.2  # of what a plan shifts from group to group, that it has to gain: predictions err by as much
PROVEN_SHARE = 1e-6  # an order that costs no more than this above the least is the best there is


def place(problem: PlacementProblem, instance: Instance, num_visits: int = NUM_VISITS) -> Queues:
    """The best order; the current one, completed by what is new, where it is not known to be worse.

    ``num_visits`` bounds the search where it is not exact.

    An order that is better for some is worse for others, and what it would gain in all is the small difference of two
    large predictions, which change a little all the time. Without `LEAST_NET_SHARE`, orders of about the same cost
    would take turns: no wait could be predicted.
    """
    found = search(instance, current_order(instance, problem.queues), num_visits)
    best = found.best
    if is_small(instance) and total_cost(instance, best) > (1 + PROVEN_SHARE) * least_cost(instance):
        from services.scheduler.solving.methods.exact import (
            solve_exactly,  # the solver's package only where it is asked
        )

        best = solve_exactly(instance, best).queues
    return best if _is_known_to_gain(instance, found.current, best) else found.current


def _is_known_to_gain(instance: Instance, current: Queues, other: Queues) -> bool:
    before, after = group_costs(instance, current), group_costs(instance, other)
    gains = [before[group] - after[group] for group in before]
    return sum(gains) > max(ROUNDING * sum(before.values()), LEAST_NET_SHARE * sum(map(abs, gains)))
