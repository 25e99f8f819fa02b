"""Local search over queues: move, merge, swap and rebuild, each taken where it lowers the cost.

Deterministic: moves are tried in a fixed order, and time is counted in visits of groups (`Budget`).
"""

from __future__ import annotations

from itertools import combinations

from services.scheduler.greedy import insert_all
from services.scheduler.instance import Queues
from services.scheduler.layout import ROUNDING, Layout

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
    """Take two groups out and put both in again where they cost least, each first once (swap)."""
    nothing = _threshold(layout)
    for one, other in combinations(_dearest_first(layout), 2):
        if layout.budget.is_spent:
            return
        if layout.cost_of_nodes((layout.node_of[one], layout.node_of[other])) <= nothing:
            continue  # nothing can be gained
        _exchange_two(layout, one, other)


def _exchange_two(layout: Layout, one: int, other: int) -> None:
    nodes = {layout.node_of[one], layout.node_of[other]}
    queues = {node: layout.queues[node] for node in nodes}
    before = layout.cost_of_nodes(nodes)
    layout.take(one)
    layout.take(other)
    saving = before - layout.cost_of_nodes(nodes) - _threshold(layout)
    groups = layout.instance.groups
    for first, second in ((one, other), (other, one)):
        found = layout.best_of([first], groups[first].places, saving)
        if found.added < saving:
            layout.insert(found, [first])
            then = layout.best_of([second], groups[second].places, saving - found.added)
            if then.added < saving - found.added:
                layout.insert(then, [second])
                return
            layout.take(first)
    for node, queue in queues.items():
        layout.replace(node, queue)


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
