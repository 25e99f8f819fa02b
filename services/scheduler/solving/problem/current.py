"""The queues as they are, as far as they keep the rules: where a solver may start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.scheduler.solving.problem.instance import Instance, Queues


def current_order(instance: Instance, queues: Mapping[str, Sequence[str]]) -> Queues:
    """Groups and nodes that are gone are left out, and groups that may not stay where they are.

    A group that stands where the rules forbid it moves forward as far as it has to.
    """
    numbers = {group.name: number for number, group in enumerate(instance.groups)}
    order: Queues = []
    for node, state in enumerate(instance.nodes):
        queue: list[int] = []
        for name in queues.get(state.name, ()):
            group = numbers.get(name)
            if group is not None and node in instance.groups[group].places:
                del numbers[name]  # it stands in one queue only
                queue.insert(instance.span(group, node, queue)[1], group)
        order.append(_with_full_runners_first(instance, node, queue))
    return order


def _with_full_runners_first(instance: Instance, node: int, queue: list[int]) -> list[int]:
    """Of the running groups in front, those of which some wait go last: they would claim the places of the others.

    That happens where members join a group that runs; whether it is worth an eviction is for the solver to say.
    """
    groups = instance.groups
    num_front = next((place for place, group in enumerate(queue) if groups[group].home != node), len(queue))
    front = sorted(queue[:num_front], key=lambda group: (groups[group].num_waiting > 0, groups[group].due_s))
    return [*front, *queue[num_front:]]
