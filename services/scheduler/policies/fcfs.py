"""First come, first served, model by model: how vLLM instances behind a load balancer serve (QLM, SoCC'24 §8)."""

from __future__ import annotations

from services.scheduler.solving.methods.turns import running_groups, turns
from services.scheduler.solving.problem.instance import Instance, Queues
from services.scheduler.solving.problem.tables import arrival
from shared.messages.nodes.placement import PlacementProblem


def place(problem: PlacementProblem, instance: Instance) -> Queues:
    """Each group goes to the shortest queue that ends with its model, else to the shortest at all, and stays there.

    Queues are in the order of arrival and measured in requests. A node that has loaded nothing ends with what it holds.
    """
    numbers = {node.name: number for number, node in enumerate(instance.nodes)}
    routed = {name: numbers[node] for node, queue in problem.queues.items() if node in numbers for name in queue}
    queues = running_groups(instance)
    ends = [node.model for node in instance.nodes]
    lengths = [sum(_num_requests(instance, group) for group in queue) for queue in queues]
    for number in turns(instance, key=lambda number: arrival(instance.groups[number].name)):
        group = instance.groups[number]
        node = routed.get(group.name)
        if node is None or node not in group.places:
            holders = [place for place in group.places if ends[place] == group.model]
            node = min(holders or group.places, key=lengths.__getitem__)
        queues[node].append(number)
        ends[node] = group.model
        lengths[node] += _num_requests(instance, number)
    return queues


def _num_requests(instance: Instance, group: int) -> int:
    return instance.groups[group].num_waiting + instance.groups[group].num_running
