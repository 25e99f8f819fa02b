"""What the policies that do not search have in common: running groups stay, the others take their turns."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from services.scheduler.solving.problem.instance import Instance, Queues
from shared.messages.requests.request_kind import RequestKind


def running_groups(instance: Instance) -> Queues:
    """The groups that run, each at its node."""
    queues: Queues = [[] for _ in instance.nodes]
    for number, group in enumerate(instance.groups):
        if group.home is not None:
            queues[group.home].append(number)
    return queues


def by_due(instance: Instance, queues: Queues) -> Queues:
    """What runs and stands in front goes behind what waits and is due before it, where a plan may evict.

    Neither those that run nor those that wait change places with one another, but that those that run go by deadline.
    Within a kind, a group that waits goes ahead of one that runs only if its number is less.
    """
    if not instance.may_evict:
        return queues
    groups = instance.groups
    ordered: Queues = []
    for node, queue in enumerate(queues):
        waiting = [group for group in queue if groups[group].home != node]
        due_s = {group: groups[group].due_s for group in waiting}
        running = [group for group in queue if groups[group].home == node]
        for group in running:
            behind = (one for one in waiting if one > group and groups[one].kind == groups[group].kind)
            due_s[group] = min(groups[group].due_s, *(due_s[one] for one in behind), inf)
        running.sort(key=due_s.__getitem__)
        ordered.append(list(heapq.merge(running, waiting, key=due_s.__getitem__)))
    return ordered


def turns(instance: Instance, key: Callable[[int], Any]) -> Iterator[int]:
    """The other groups that have a place, least key first; within a kind by number, whatever the keys."""
    lines: dict[RequestKind, deque[int]] = {}
    for number, group in enumerate(instance.groups):
        if group.home is None and group.places:
            lines.setdefault(group.kind, deque()).append(number)
    heads = [(key(line[0]), line[0]) for line in lines.values()]
    heapq.heapify(heads)
    while heads:
        _, number = heapq.heappop(heads)
        yield number
        line = lines[instance.groups[number].kind]
        line.popleft()
        if line:
            heapq.heappush(heads, (key(line[0]), line[0]))
