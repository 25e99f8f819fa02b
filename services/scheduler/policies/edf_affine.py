"""Earliest deadline first that keeps the loaded model among groups that are due at about the same time.

Plain EDF changes the model whenever the next deadline is another model's: with several models on a node it spends its
time with loads. This one is the least that an operator would do about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from services.scheduler.solving.methods.turns import by_due, running_groups, turns
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.messages.nodes.placement import PlacementProblem

ABOUT_S = 60.0  # groups that are due within this of one another are due at about the same time


def place(problem: PlacementProblem, instance: Instance) -> Queues:  # noqa: ARG001 (a policy's signature)
    """The group that is due first goes to the node that begins it first, the load of its model counted.

    At a node, groups of the model that is loaded by then go on as long as no other group is due `ABOUT_S` before them.
    """
    queues = running_groups(instance)
    ends = [node.model for node in instance.nodes]
    clock_s = [
        node.ready_s + sum(node.work_s[group] for group in queue)
        for node, queue in zip(instance.nodes, queues, strict=True)
    ]
    for number in turns(instance, key=lambda number: instance.groups[number].due_s):
        group = instance.groups[number]
        begin_s = {
            place: clock_s[place] + (instance.nodes[place].load_s[group.model] if ends[place] != group.model else 0.0)
            for place in group.places
        }
        node = min(begin_s, key=begin_s.__getitem__)
        queues[node].append(number)
        ends[node] = group.model
        clock_s[node] = begin_s[node] + instance.nodes[node].work_s[number]
    return [_ordered(instance, node, queue) for node, queue in enumerate(by_due(instance, queues))]


def _ordered(instance: Instance, node: int, queue: Sequence[int]) -> list[int]:
    """Where nothing is evicted, what runs stands in front, and the others go on from its model."""
    running = [] if instance.may_evict else [group for group in queue if instance.groups[group].home == node]
    model = instance.groups[running[-1]].model if running else instance.nodes[node].model
    return [*running, *together(instance, model, queue[len(running) :])]


def together(instance: Instance, model: str, queue: Sequence[int]) -> list[int]:
    """The queue of a node that holds ``model``; within a model its order stays. O(groups x models)."""
    lines: dict[str, deque[int]] = {}
    for number in queue:
        lines.setdefault(instance.groups[number].model, deque()).append(number)
    order: list[int] = []
    while lines:
        first = min(lines, key=lambda name: instance.groups[lines[name][0]].due_s)
        first_s = instance.groups[lines[first][0]].due_s
        if model not in lines or instance.groups[lines[model][0]].due_s > first_s + ABOUT_S:
            model = first
        order.append(lines[model].popleft())
        if not lines[model]:
            del lines[model]
    return order
