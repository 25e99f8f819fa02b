"""Orders the virtual queues: greedy insertion under one cost function (QLM, SoCC'24 §6, the objective made soft).

Cost of a set of queues = weighted lateness of the groups first, then their waiting; a swap costs its time in the wait
of everybody behind it, so groups of one model end up together unless a deadline says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.estimator import drain_s
from shared.messages import GroupLoad, NodeState, PlacementProblem, Plan

PRIOR_SWAP_S = 2.0  # assumed duration of a swap on a node that has not measured one
LATE_WEIGHT = 1_000.0  # a second late counts as this many seconds of waiting: lateness decides, waiting breaks ties
LATE_GROWTH_S = 30.0  # each second beyond this costs more than the one before, so nobody is passed over for ever


@dataclass(frozen=True, slots=True)
class QueueCost:
    """What one order of groups on one node costs."""

    late_s: float
    """Seconds after their deadlines at which groups start, times their requests."""
    wait_s: float
    """Seconds until groups start, times their requests."""
    num_swaps: int
    penalty_s: float
    """Lateness as it is weighed: `late_penalty_s`, times their requests."""

    @property
    def total(self) -> float:
        """Lateness first, waiting second."""
        return LATE_WEIGHT * self.penalty_s + self.wait_s


def late_penalty_s(late_s: float) -> float:
    """Lateness, growing faster than linearly: a large group a little late cannot outweigh a small one for ever."""
    return late_s * (1 + late_s / LATE_GROWTH_S)


def queue_cost(node: NodeState, queue: list[GroupLoad], now_s: float) -> QueueCost:
    """Walk a queue from its head: wait = drain of the groups ahead + swaps so far (QLM §6, eq. for slot j)."""
    clock_s, late_s, wait_s, penalty_s, num_swaps = 0.0, 0.0, 0.0, 0.0, 0
    model = node.model
    for load in queue:
        if load.model != model:
            clock_s += node.swap_s or PRIOR_SWAP_S
            num_swaps += 1
            model = load.model
        late = max(0.0, now_s + clock_s - load.deadline_s)
        late_s += late * load.num_requests
        penalty_s += late_penalty_s(late) * load.num_requests
        wait_s += clock_s * load.num_requests
        clock_s += drain_s(node, load)
    return QueueCost(late_s, wait_s, num_swaps, penalty_s)


def solve(problem: PlacementProblem) -> Plan:
    """Insert the groups, those due first before others, each where it costs least. Deterministic; ties go to the back.

    Groups that run stay at the head of their node. O(groups² · length of a queue): the caller bounds the groups.
    """
    nodes = {node.node: node for node in problem.nodes}
    queues: dict[str, list[GroupLoad]] = {name: [] for name in nodes}
    by_deadline = sorted(problem.groups, key=lambda load: (load.deadline_s, load.group))
    for load in by_deadline:
        if load.running and load.node in nodes:
            queues[load.node].append(load)
    fixed = {name: len(queue) for name, queue in queues.items()}
    for load in by_deadline:
        if nodes and not (load.running and load.node in nodes):
            name, place = _cheapest_place(load, nodes, queues, fixed, problem.now_s)
            queues[name].insert(place, load)
    costs = [queue_cost(nodes[name], queue, problem.now_s) for name, queue in queues.items()]
    return Plan(
        version=problem.version,
        queues={name: [load.group for load in queue] for name, queue in queues.items()},
        num_swaps=sum(cost.num_swaps for cost in costs),
        late_s=sum(cost.late_s for cost in costs),
    )


def _cheapest_place(
    load: GroupLoad,
    nodes: dict[str, NodeState],
    queues: dict[str, list[GroupLoad]],
    fixed: dict[str, int],
    now_s: float,
) -> tuple[str, int]:
    """Node and place at which inserting the group raises the total cost least."""
    best: tuple[float, str, int] | None = None
    able = {name: node for name, node in nodes.items() if load.model not in node.broken_models}
    for name, node in (able or nodes).items():  # where it is broken everywhere, its clients are at least told so
        queue = queues[name]
        before = queue_cost(node, queue, now_s).total
        for place in _places(load, queue, fixed[name]):
            trial = [*queue[:place], load, *queue[place:]]
            added = queue_cost(node, trial, now_s).total - before
            if best is None or added < best[0]:
                best = (added, name, place)
    assert best is not None, "no node to place a group on"
    return best[1], best[2]


def _places(load: GroupLoad, queue: list[GroupLoad], fixed: int) -> list[int]:
    """Places worth trying, last first: the end, and where the model changes, but behind every group of the same model.

    Groups come in the order of their deadlines, so those of one model stay in it: first come, first served.
    """
    same = [place for place in range(len(queue)) if queue[place].model == load.model]
    first = max(fixed, same[-1] + 1 if same else 0)
    changes = [place for place in range(first, len(queue)) if place == first or _changes_model(queue, place)]
    return [len(queue), *reversed(changes)]


def _changes_model(queue: list[GroupLoad], place: int) -> bool:
    return place == 0 or queue[place - 1].model != queue[place].model
