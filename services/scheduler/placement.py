"""Orders the virtual queues: from a problem to a plan, by the policy that it names. With it, the sizes of pools."""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.policies import POLICIES, Policy
from services.scheduler.solving.foresight.foresight import foreseen
from services.scheduler.solving.foresight.sizing import needed_nodes
from services.scheduler.solving.problem.cost import late_request_s, num_swaps
from services.scheduler.solving.problem.tables import make_instance
from shared.messages.nodes.placement import PlacementProblem, Plan


def solve(problem: PlacementProblem, policies: Mapping[str, Policy] = POLICIES) -> Plan:
    """Every group that a node may serve has one place; the others are left out and wait. Deterministic.

    KeyError for a policy that does not exist; the configuration allows none.
    """
    foresight = foreseen(problem)
    instance = make_instance(foresight.problem)
    placed = policies[problem.policy](foresight.problem, instance)
    queues = [[group for group in queue if group < foresight.num_here] for queue in placed]
    return Plan(
        version=problem.version,
        queues={
            node.name: foresight.names(instance, queue) for node, queue in zip(instance.nodes, placed, strict=True)
        },
        loads=foresight.loads(instance, placed),
        num_swaps=num_swaps(instance, queues),
        late_s=late_request_s(instance, queues),
        num_nodes=needed_nodes(problem) if problem.pools else {},
    )
