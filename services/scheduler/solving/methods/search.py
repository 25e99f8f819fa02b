"""Local search over queues: move, merge, swap and rebuild, each taken where it lowers the cost.

Deterministic: moves are tried in a fixed order, and time is counted in visits of groups (`Budget`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from services.scheduler.solving.methods.greedy import insert_all
from services.scheduler.solving.methods.layout import ROUNDING, Layout
from services.scheduler.solving.problem.instance import Queues

MAX_SEGMENT = 3  # groups that move together, besides all of one model that stand together


def improve(layout: Layout) -> None:
    """Until nothing helps, or the budget is spent. What costs more is tried when what costs less helps no more."""
    moves = (_move_segments, _exchange, _rebuild)
    level = 0
    while level < len(moves) and not layout.budget.is_spent:
        before = layout.cost
        moves[level](layout)
        level = 0 if layout.cost < before * (1 - ROUNDING) else level + 1


def _move_segments(layout: Layout) -> None:
    """Each group, each short segment and each run of one model to where it costs least (move, merge)."""
    for node in range(len(layout.queues)):
        place = 0
        while place < len(layout.queues[node]) and not layout.budget.is_spent:
            if not any(_move(layout, node, place, length) for length in _lengths(layout, node, place)):
                place += 1


def _lengths(layout: Layout, node: int, place: int) -> list[int]:
    """How many groups from ``place`` on may move together: a few, and all of the same model."""
    groups, queue = layout.instance.groups, layout.queues[node]
    run = 1
    while place + run < len(queue) and groups[queue[place + run]].model == groups[queue[place]].model:
        run += 1
    return sorted({*range(1, min(MAX_SEGMENT, len(queue) - place) + 1), run})


def _move(layout: Layout, node: int, place: int, length: int) -> bool:
    """Move a segment if that lowers the cost."""
    queue, groups = layout.queues[node], layout.instance.groups
    segment = queue[place : place + length]
    saving = layout.saving(node, place, length) - _threshold(layout)
    if saving <= 0:
        return False
    common = set(groups[segment[0]].places).intersection(*(groups[group].places for group in segment))
    found = layout.best_of(segment, sorted(common - {node}), saving)
    layout.cut(node, place, length)
    here = layout.best_place(segment, node, min(saving, found.added))
    best = min(here, found, key=lambda each: each.added)
    if best.added < saving:
        layout.insert(best, segment)
        return True
    layout.replace(node, queue, place)
    return False


def _exchange(layout: Layout) -> None:
    """Take two short segments out and put their groups in again: where each costs least, or crossed (swap)."""
    nothing = _threshold(layout)
    for num_groups in range(2, 2 * MAX_SEGMENT + 1):
        for one, other in combinations(_dearest_first(layout), 2):
            if layout.cost_of_nodes((layout.node_of[one], layout.node_of[other])) <= nothing:
                continue  # nothing can be gained
            for length in range(max(1, num_groups - MAX_SEGMENT), min(MAX_SEGMENT, num_groups - 1) + 1):
                if layout.budget.is_spent:
                    return
                _exchange_two(layout, _segment(layout, one, length), _segment(layout, other, num_groups - length))


def _segment(layout: Layout, group: int, length: int) -> list[int]:
    """So many groups of its queue, from this one on; none where there are fewer."""
    queue = layout.queues[layout.node_of[group]]
    place = queue.index(group)
    return queue[place : place + length] if place + length <= len(queue) else []


def _exchange_two(layout: Layout, one: list[int], other: list[int]) -> None:
    if not one or not other or set(one) & set(other):
        return
    here, there = layout.node_of[one[0]], layout.node_of[other[0]]
    places = {group: layout.instance.groups[group].places for group in (*one, *other)}
    crossed = dict.fromkeys(one, (there,)) | dict.fromkeys(other, (here,))
    tries: list[tuple[list[int], Mapping[int, Sequence[int]]]] = [([*one, *other], places), ([*other, *one], places)]
    if here != there and all(crossed[group][0] in places[group] for group in crossed):
        tries.append(([*one, *other], crossed))
    nodes = {here, there}
    queues = {node: layout.queues[node] for node in nodes}
    before = layout.cost_of_nodes(nodes)
    for group in (*one, *other):
        layout.take(group)
    saving = before - layout.cost_of_nodes(nodes) - _threshold(layout)
    if not any(_put_back(layout, groups, nodes_of, saving) for groups, nodes_of in tries):
        for node, queue in queues.items():
            layout.replace(node, queue)


def _put_back(layout: Layout, groups: list[int], nodes_of: Mapping[int, Sequence[int]], saving: float) -> bool:
    """Each where it costs least of its nodes, as long as all together cost less than was saved; otherwise none."""
    for number, group in enumerate(groups):
        found = layout.best_of([group], nodes_of[group], saving)
        if found.added >= saving:
            for placed in groups[:number]:
                layout.take(placed)
            return False
        layout.insert(found, [group])
        saving -= found.added
    return True


def _rebuild(layout: Layout) -> None:
    """Empty two queues, and place all that they held by regret."""
    nodes = sorted(range(len(layout.queues)), key=lambda node: -layout.cost_at(node))
    nothing = _threshold(layout)
    for one, other in combinations(nodes, 2):
        if layout.budget.is_spent:
            return
        if layout.cost_of_nodes((one, other)) <= nothing:
            continue  # nothing can be gained
        before, queues = layout.cost, layout.copy()
        layout.replace(one, [])
        layout.replace(other, [])
        insert_all(layout, [*queues[one], *queues[other]])
        if layout.cost > before - _threshold(layout):
            restore(layout, queues)


def restore(layout: Layout, queues: Queues) -> None:
    """Put all queues back that have changed."""
    for node, queue in enumerate(queues):
        if layout.queues[node] != queue:
            layout.replace(node, queue)


def _dearest_first(layout: Layout) -> list[int]:
    """All groups, those of the dearest nodes first: most is to be gained there."""
    nodes = sorted(range(len(layout.queues)), key=lambda node: -layout.cost_at(node))
    return [group for node in nodes for group in layout.queues[node]]


def _threshold(layout: Layout) -> float:
    """A gain smaller than this is a sum in another order."""
    return ROUNDING * (1.0 + layout.cost)
