"""Where the next plan can be expected to have groups that have come since the last one.

A new group stands where a rule has put it, mostly at the tail, where it costs no other anything. The next plan
weighs more: it has a group served with the first of its model, since a swap for it alone pays seldom, and before those
that are due later, also where a running group has to give way for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.queue_manager.state.group import Group

MAX_MOVED = 64  # new groups of a queue that are put where the plan is expected to have them; the first ones


def planned_order(model: str, queue: Sequence[Group], *, may_evict: bool) -> list[Group]:
    """The groups of a queue, whose node holds ``model``, those that no plan has ordered where the next one will."""
    order = list(queue)
    new = [group for group in queue if group.waiting and not group.is_planned]
    for group in new[:MAX_MOVED]:
        place = order.index(group)
        index = index_by_plan(model, order, group, place, may_evict=may_evict)
        if index != place:
            order.insert(index, order.pop(place))
    return order


def index_by_plan(model: str, queue: Sequence[Group], group: Group, index: int, *, may_evict: bool) -> int:
    """Where a member of the group that is at this index of a queue can be expected to be; the node holds ``model``."""
    return _index_by_due(queue, group, _index_by_model(model, queue, group, index), may_evict=may_evict)


def is_before(group: Group, other: Group) -> bool:
    """Whether a new group may start before one that waits: of its own kind by rank, of others by when it is due."""
    if group.slo_kind == other.slo_kind:
        return group.rank < other.rank
    return group.start_by_s < other.start_by_s


def _index_by_model(model: str, queue: Sequence[Group], group: Group, index: int) -> int:
    is_with_its_own = model == group.model
    for place, other in enumerate(queue[:index]):
        if other.model == group.model:
            is_with_its_own = True
        elif is_with_its_own and other.waiting:
            return place
    return index


def _index_by_due(queue: Sequence[Group], group: Group, index: int, *, may_evict: bool) -> int:
    for place in range(index - 1, -1, -1):
        other = queue[place]
        if other.model != group.model or (other.running and not may_evict):
            break
        if other is group or not other.waiting:
            continue
        if not is_before(group, other):
            break
        index = place
    return index
