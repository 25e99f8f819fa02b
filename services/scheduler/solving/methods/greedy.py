"""Insertion by regret: the group that would lose most by not getting its best node is placed first.

(Potvin and Rousseau, 1993, for vehicle routing: routes are queues, customers are groups.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from services.scheduler.solving.methods.layout import NOWHERE, Layout, SegmentPlace

REGRET_GROUPS = 12  # groups that compete for being next, those due first; bounds the work on large problems


@dataclass(slots=True)
class _Candidate:
    """A group that has no place yet, with the best place on each node."""

    group: int
    found: dict[int, SegmentPlace] = field(default_factory=dict)
    best: SegmentPlace = NOWHERE
    regret: float = 0.0

    def look(self, layout: Layout, nodes: Iterable[int]) -> None:
        """Learn what these nodes offer now."""
        for node in nodes:
            self.found[node] = layout.best_place((self.group,), node)
        first = second = inf
        for place in self.found.values():
            if place.added < first:
                first, second, self.best = place.added, first, place
            elif place.added < second:
                second = place.added
        self.regret = 0.0 if first == inf else second - first


def insert_all(layout: Layout, groups: Iterable[int]) -> None:
    """Give every one of these groups a place; those that no node can serve are left out.

    Once the budget is spent, the rest is appended in order of deadline, where it is served first.
    """
    facts = layout.instance.groups
    todo = sorted((group for group in groups if facts[group].places), key=lambda group: (facts[group].due_s, group))
    todo.reverse()
    candidates: list[_Candidate] = []
    while (todo or candidates) and not layout.budget.is_spent:
        while todo and len(candidates) < REGRET_GROUPS:
            candidate = _Candidate(todo.pop())
            candidate.look(layout, facts[candidate.group].places)
            candidates.append(candidate)
        chosen = max(candidates, key=lambda candidate: candidate.regret)  # of equals the one that is due first
        candidates.remove(chosen)
        layout.insert(chosen.best, (chosen.group,))
        for candidate in candidates:
            if chosen.best.node in candidate.found:
                candidate.look(layout, (chosen.best.node,))
    for group in [*(candidate.group for candidate in candidates), *reversed(todo)]:
        layout.insert(layout.soonest(group), (group,))
