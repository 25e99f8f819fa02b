"""Earliest deadline first: what QLM is compared with (SoCC'24 §8)."""

from __future__ import annotations

from services.scheduler.solving.methods.turns import by_due, running_groups, turns
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.messages.nodes.placement import PlacementProblem


def place(problem: PlacementProblem, instance: Instance) -> Queues:  # noqa: ARG001 (a policy's signature)
    """The group that is due first goes to the node that is free first, of those that can run it.

    A node is free when the work in its queue is done; loads of models are not counted, so they come as they come. With
    eviction, what is due first goes first at its node, whether it runs already or not.
    """
    queues = running_groups(instance)
    clock_s = [sum(node.work_s[group] for group in queue) for node, queue in zip(instance.nodes, queues, strict=True)]
    for group in turns(instance, key=lambda number: instance.groups[number].due_s):
        node = min(instance.groups[group].places, key=clock_s.__getitem__)
        queues[node].append(group)
        clock_s[node] += instance.nodes[node].work_s[group]
    return by_due(instance, queues)
