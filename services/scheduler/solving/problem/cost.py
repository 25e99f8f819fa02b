"""What an order of groups costs: the one function that every method optimises (QLM, SoCC'24 §6, made soft).

The paper asks that no group starts after its deadline and minimises the waiting; under overload nothing satisfies that.
Here lateness has a price, so that there is always a plan, and the price decides before waiting does.

Waiting. A node is walked from the head of its queue. A group waits for the work of the groups ahead
(`InstanceNode.work_s`), for each load of a model, before which what runs has to end, and for evictions. A load that has
begun ends before anything else does (`InstanceNode.ready_s`). A group of the model that is already served does not wait
until the batch is empty: it starts when the work ahead has fallen to what a full batch has in it at any time
(`InstanceNode.overlap_s`); while the batch has room, at once.

Running groups. At its own node, with nothing ahead that claims its place, a running group goes on and costs nothing
for its running members. A group ahead of it in which a request waits claims its place if it is of another model or the
batch is full: then what still runs behind is evicted (`VirtualQueue.yielding`), which delays all by its time, and
the evicted wait for their turn again.

Starvation is impossible: the price of a second late doubles with lateness (`late_penalty_s`) and has no bound, while
the price of a group that came later starts at one. However large the others are, one that is passed over becomes the
dearest of all and goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from math import frexp, inf, ldexp

from services.scheduler.solving.problem.instance import Instance, InstanceNode, Queues

LATE_WEIGHT = 1_000.0  # a second late counts as this many seconds of waiting: lateness decides, waiting breaks ties
LATE_STEP_S = 30.0  # up to here a second late has price 1; then twice as far for each doubling of the price

WalkState = tuple[float, float, float, str, bool, float, float, float]
"""Of a walk, between two groups: clock_s (all work so far is done), start_s (the last group began), end_s (the last
request so far ends), the model, whether running groups have been evicted, yield_s (to evict those not passed yet),
the seconds by which requests are late, and the cost so far."""


def late_penalty_s(late_s: float) -> float:
    """Price of lateness in seconds: piecewise linear and convex, slope ``2^k`` from ``(2^k - 1) * LATE_STEP_S`` on."""
    if late_s <= 0:
        return 0.0
    price = ldexp(1.0, frexp(late_s / LATE_STEP_S + 1.0)[1] - 1)
    # the pieces before have length 2^i steps and slope 2^i: together (4^k - 1) / 3 steps
    return LATE_STEP_S * (price * price - 1.0) / 3.0 + price * (late_s - LATE_STEP_S * (price - 1.0))


def late_pieces(late_s: float) -> list[tuple[float, float]]:
    """Slope and value at 0 of the lines whose maximum is `late_penalty_s` up to ``late_s``."""
    pieces, price = [], 1.0
    while price == 1.0 or LATE_STEP_S * (price - 1.0) < late_s:
        pieces.append((price, LATE_STEP_S * ((price * price - 1.0) / 3.0 - price * (price - 1.0))))
        price *= 2.0
    return pieces


def beginning(node: InstanceNode) -> WalkState:
    """Before the first group."""
    return node.ready_s, node.ready_s, node.ready_s, node.model, False, node.yield_s, 0.0, 0.0


def walk(
    instance: Instance, number: int, queue: Iterable[int], state: WalkState, limits: Iterable[float] = repeat(inf)
) -> WalkState:
    """Go on from ``state`` through these groups of a node. Once the cost exceeds a group's limit, it is infinite.

    Cost of a group: its requests x (`LATE_WEIGHT` x penalty of the lateness of its mean member + seconds until all of
    it is done).
    """
    groups, node = instance.groups, instance.nodes[number]
    clock_s, start_s, end_s, model, evicted, yield_s, total_late_s, cost = state
    for name, limit in zip(queue, limits, strict=False):
        group = groups[name]
        num_requests = group.num_waiting
        setup_s = 0.0
        claims = node.is_full or group.model != node.model
        if group.home == number and not evicted:
            yield_s -= node.evict_s[name]
            rest_s = node.rest_s[name]
            end_s = rest_s if rest_s > end_s else end_s
            claims = claims and group.num_waiting > 0
        else:
            num_requests += group.num_running
            setup_s = node.setup_s[name]
        if claims and not evicted:
            evicted = True
            clock_s += yield_s
            start_s += yield_s
        if group.model != model:
            model = group.model
            overlap_s = node.overlap_s[model]
            clock_s = (end_s if end_s > clock_s else clock_s) + node.load_s[model]
            start_s = clock_s
        else:
            overlap_s = node.overlap_s[model]
            free_s = clock_s - overlap_s
            start_s = free_s if free_s > start_s else start_s
        last_s = clock_s + node.lead_s[name] - overlap_s
        last_s = start_s if start_s > last_s else last_s
        end_s = last_s if last_s > end_s else end_s
        if num_requests:
            done_s = setup_s + last_s + node.tail_s[name]
            end_s = done_s if done_s > end_s else end_s
            late_s = setup_s + (start_s + last_s) / 2 - node.due_s[name]
            if late_s > 0:
                total_late_s += num_requests * late_s
                cost += LATE_WEIGHT * num_requests * late_penalty_s(late_s)
            cost += num_requests * done_s
            if cost > limit:
                cost = inf
                break
        clock_s += setup_s + node.work_s[name]
    return clock_s, start_s, end_s, model, evicted, yield_s, total_late_s, cost


def cost_of(state: WalkState) -> float:
    """Cost so far."""
    return state[-1]


def queue_cost(instance: Instance, number: int, queue: Iterable[int]) -> float:
    """Cost of one node's queue."""
    return cost_of(walk(instance, number, queue, beginning(instance.nodes[number])))


def total_cost(instance: Instance, queues: Queues) -> float:
    """Cost of all queues together."""
    return sum(queue_cost(instance, number, queue) for number, queue in enumerate(queues))


def group_costs(instance: Instance, queues: Queues) -> dict[int, float]:
    """What each group adds to the cost of all queues."""
    costs = {}
    for number, queue in enumerate(queues):
        state = beginning(instance.nodes[number])
        for group in queue:
            before = cost_of(state)
            state = walk(instance, number, (group,), state)
            costs[group] = cost_of(state) - before
    return costs


def least_cost(instance: Instance) -> float:
    """No order costs less: every group as if it were alone at the head of the node that is best for it."""

    def alone(number: int, node: int) -> float:
        ready_s, model = instance.nodes[node].ready_s, instance.nodes[node].model
        return cost_of(walk(instance, node, [number], (ready_s, ready_s, ready_s, model, False, 0.0, 0.0, 0.0)))

    places = ((number, group.places) for number, group in enumerate(instance.groups) if group.places)
    return sum(min(alone(number, node) for node in nodes) for number, nodes in places)


def late_request_s(instance: Instance, queues: Queues) -> float:
    """Seconds by which groups start after their deadlines, times their requests; what a plan reports."""
    ends = (walk(instance, number, queue, beginning(instance.nodes[number])) for number, queue in enumerate(queues))
    return sum(late_s for *_, late_s, _ in ends)


def num_swaps(instance: Instance, queues: Queues) -> int:
    """Model loads that the orders ask for."""
    return sum(
        _num_changes([instance.nodes[number].model, *(instance.groups[name].model for name in queue)])
        for number, queue in enumerate(queues)
    )


def _num_changes(models: Sequence[str]) -> int:
    return sum(one != other for one, other in pairwise(models))
