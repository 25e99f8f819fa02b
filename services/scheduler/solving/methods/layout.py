"""Virtual queues under change: what it would cost to put a group somewhere, without walking all queues again.

Each queue keeps the state of its walk before every place, so a trial walks from there on only; and it stops as soon as
it costs more than the best trial so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, repeat
from math import inf

from services.scheduler.solving.problem.cost import WalkState, beginning, cost_of, walk
from services.scheduler.solving.problem.instance import Instance, Queues

MAX_PLACES = 24  # places tried in one queue; in a longer one those where its kind changes, and some between
ROUNDING = 1e-9  # a gain below this share of the cost is a sum in another order


@dataclass(slots=True)
class Budget:
    """Group visits that a search may still make: its time, in a unit that is the same on every machine."""

    num_visits: int

    def spend(self, num_visits: int) -> None:
        """Count visits that were made."""
        self.num_visits -= num_visits

    @property
    def is_spent(self) -> bool:
        """Whether to come to an end."""
        return self.num_visits <= 0


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where a segment could be put in."""

    added: float
    """Cost that it adds as far as that was asked for; ``inf`` where there is no place."""
    node: int
    place: int


NOWHERE = SegmentPlace(inf, 0, 0)


class Layout:
    """Owns the queues of all nodes."""

    def __init__(self, instance: Instance, budget: Budget) -> None:
        self.instance = instance
        self.budget = budget
        self.queues: Queues = [[] for _ in instance.nodes]
        self.node_of: dict[int, int] = {}
        self._states: list[list[WalkState]] = [[beginning(node)] for node in instance.nodes]
        self._costs: list[list[float]] = [[0.0] for _ in instance.nodes]  # of these states

    @property
    def cost(self) -> float:
        """Cost of all queues."""
        return sum(costs[-1] for costs in self._costs)

    def cost_at(self, node: int) -> float:
        """Cost of one node's queue."""
        return self._costs[node][-1]

    def cost_of_nodes(self, nodes: Iterable[int]) -> float:
        """Cost of the queues of these nodes."""
        return sum(self.cost_at(node) for node in nodes)

    def copy(self) -> Queues:
        """The queues as they are now."""
        return [list(queue) for queue in self.queues]

    def replace(self, node: int, queue: Sequence[int], unchanged: int = 0) -> None:
        """Give a node another queue, of which the first ``unchanged`` groups are the ones that it has."""
        self.queues[node] = list(queue)
        states, costs = self._states[node], self._costs[node]
        del states[unchanged + 1 :], costs[unchanged + 1 :]
        for group in queue[unchanged:]:
            states.append(walk(self.instance, node, (group,), states[-1]))
            costs.append(cost_of(states[-1]))
            self.node_of[group] = node
        self.budget.spend(len(queue) - unchanged)

    def insert(self, place: SegmentPlace, segment: Sequence[int]) -> None:
        """Put a segment in."""
        queue = self.queues[place.node]
        self.replace(place.node, [*queue[: place.place], *segment, *queue[place.place :]], place.place)

    def cut(self, node: int, place: int, num_groups: int) -> None:
        """Take a segment out."""
        queue = self.queues[node]
        self.replace(node, [*queue[:place], *queue[place + num_groups :]], place)

    def take(self, group: int) -> None:
        """Take one group out, wherever it is."""
        node = self.node_of.pop(group)
        self.cut(node, self.queues[node].index(group), 1)

    def saving(self, node: int, place: int, num_groups: int = 1) -> float:
        """What the cost falls by without a segment."""
        queue, states = self.queues[node], self._states[node]
        rest = queue[place + num_groups :]
        self.budget.spend(len(rest) + 1)
        return self._costs[node][-1] - cost_of(walk(self.instance, node, rest, states[place]))

    def best_place(self, segment: Sequence[int], node: int, limit: float = inf) -> SegmentPlace:
        """Where in one queue a segment adds least, if that is below ``limit``; of equal places the last."""
        queue, states = self.queues[node], self._states[node]
        costs = self._costs[node]
        before = costs[-1]
        running = self.instance.nodes[node].evict_s
        num_ahead = next((len(queue) - back for back, group in enumerate(reversed(queue)) if group in running), 0)
        best = NOWHERE
        for place in self._places(segment, node):
            # behind all that runs here a segment only delays those behind it, and what it has added so far is a bound;
            # what runs may get another part by it, and then others may start earlier
            only_delays = place >= num_ahead and running.keys().isdisjoint(segment)
            bound = (costs[place] if only_delays else before) + limit
            state = walk(self.instance, node, segment, states[place], repeat(bound))
            num_visits = len(segment)
            if cost_of(state) < bound:
                rest = queue[place:]
                limits = [cost + limit for cost in costs[place + 1 :]] if only_delays else repeat(before + limit)
                num_visits += len(rest)
                added = cost_of(walk(self.instance, node, rest, state, limits)) - before
                if added < limit:
                    limit, best = added, SegmentPlace(added, node, place)
            self.budget.spend(num_visits)
        return best

    def best_of(self, segment: Sequence[int], nodes: Iterable[int], limit: float = inf) -> SegmentPlace:
        """Where on these nodes a segment adds least, if that is below ``limit``; of equal nodes the cheapest.

        Cheap nodes are tried first: what is found there rules out most places on the others.
        """
        best = NOWHERE
        for node in sorted(nodes, key=self.cost_at):
            found = self.best_place(segment, node, min(limit, best.added))
            if found is not NOWHERE:
                best = found
        return best

    def soonest(self, group: int) -> SegmentPlace:
        """The last allowed place on the node that would begin it first there; found without walking any queue."""
        model = self.instance.groups[group].model

        def begin_s(node: int) -> float:
            clock_s, _, _, served, *_ = self._states[node][-1]
            return clock_s + (self.instance.nodes[node].load_s[model] if served != model else 0.0)

        node = min(self.instance.groups[group].places, key=begin_s)
        return SegmentPlace(0.0, node, self.instance.span(group, node, self.queues[node])[1])

    def _places(self, segment: Sequence[int], node: int) -> Sequence[int]:
        """Places that the rules allow, last first; a few of them where they are many."""
        queue = self.queues[node]
        first, last = self.instance.span(segment[0], node, queue)
        if any(self.instance.must_precede(later, earlier, node) for earlier, later in combinations(segment, 2)):
            return ()  # at home they run in an order that they may not start in elsewhere
        for group in segment[1:]:
            other_first, other_last = self.instance.span(group, node, queue)
            first, last = max(first, other_first), min(last, other_last)
        if last - first < MAX_PLACES:
            return range(last, first - 1, -1)
        groups = self.instance.groups
        step = (last - first) // (MAX_PLACES // 2) + 1
        changes = [p for p in range(first + 1, last) if groups[queue[p - 1]].kind != groups[queue[p]].kind]
        few = changes[:: len(changes) // (MAX_PLACES // 2) + 1]
        return sorted({first, last, *few, *range(first, last, step)}, reverse=True)
