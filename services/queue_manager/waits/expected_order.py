"""In which order a queue can be expected to be served where several models wait in it.

A plan orders what is there. A newcomer that cannot wait for those ahead has the next plan change to its model, and
others of that model go along, wherever they stood: the batch that was loaded for one has room. So with λ such newcomers
a second, groups behind other models are served in 1/λ seconds, if their turn is not before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.state import Group


def expected_order(groups: RequestGroups, model: str, queue: Sequence[Group], now: float) -> list[Group]:
    """The groups of a queue, whose node holds ``model``, as they can be expected to be served."""
    order = list(queue)
    waiting = dict.fromkeys(group.model for group in queue if group.waiting)
    if waiting.keys() <= {model}:
        return order
    for other in waiting:
        found = _brought_along(groups, model, other, queue, now)
        if found is not None:
            visit_s, mine = found
            rest = [group for group in order if group.gid not in mine]
            place = _place_at(rest, other, visit_s)
            order = [*rest[:place], *(group for group in order if group.gid in mine), *rest[place:]]
    return order


def _brought_along(
    groups: RequestGroups, loaded: str, model: str, queue: Sequence[Group], now: float
) -> tuple[float, set[str]] | None:
    """When a newcomer is expected that has the node serve ``model``, and the groups whose turn would be later."""
    displaced = list(_displaced(loaded, model, queue))
    if not displaced:
        return None
    last_s, _ = displaced[-1]
    coming = (groups.coming(flow, now) for _, flow in groups.expected_newcomers(model))
    per_s = sum(one.rate_per_s for one in coming if one.patience_s < last_s)
    if not per_s:
        return None
    return 1 / per_s, {group.gid for ahead_s, group in displaced if ahead_s > 1 / per_s}


def _displaced(loaded: str, model: str, queue: Sequence[Group]) -> Iterator[tuple[float, Group]]:
    """Groups of a model that have not begun and wait for another one's, each with the seconds of work before it."""
    ahead_s = 0.0
    is_behind = model != loaded
    for group in queue:
        if group.model != model:
            is_behind = is_behind or bool(group.waiting)
        elif group.waiting and not group.running and is_behind:
            yield ahead_s, group
        ahead_s += group.drain_s


def _place_at(queue: Sequence[Group], model: str, visit_s: float) -> int:
    """Behind so many seconds of work, behind what runs, and behind those of the model that stand there."""
    ahead_s = 0.0
    for place, group in enumerate(queue):
        if ahead_s >= visit_s and not group.running and group.model != model:
            return place
        ahead_s += group.drain_s
    return len(queue)
