"""Groups that give their place to others at a node: as the plan has it (QLM, SoCC'24 §5), or sooner for a promise.

A plan weighs what an eviction costs. But plans are made one after the other, and a first token that was promised within
a second is late by then: where batches are full of work that has hours, all of it begun together, no place comes free
for seconds. So a group whose promise is half over takes the places of those that are due `PATIENCE_S` later, whatever
the last plan says, and comes before them where one stands ahead of it. Half: until then a place comes free by itself
nearly always, and a plan can do better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import PATIENCE_S
from services.queue_manager.state.state import State
from shared.messages.requests.requests import GroupRef

HURRIED_SHARE = 0.5  # of the time until the first token is due, that is left when a group is in a hurry
MAX_LOOKED_AT = 256  # groups of a queue: what runs stands at its front


def first_hurry(state: State, node: Node, head: Sequence[GroupRef]) -> tuple[float, str]:
    """When the first of ``head`` is in a hurry, and which group that is; infinite where none ever is.

    Not where another model has to be loaded for it: that is for a plan to weigh. And none before others in ``head``
    that have as little time, or are late.
    """
    found, due_s = (math.inf, ""), math.inf
    for ref in head:
        if ref.max_running is not None:
            continue
        group = state.groups[ref.group]
        if group.model == node.model and due_s - group.start_by_s >= PATIENCE_S:
            found = min(found, (_hurries_at_s(state, group), group.gid))
        due_s = min(due_s, group.start_by_s)
    return found


def yielding(state: State, node: Node, head: Sequence[GroupRef]) -> list[str]:
    """Groups that run and give way to the first of ``head`` that may not wait, in order; by plan, those behind it.

    Not to their like: an evicted request waits in front of the rest of the old group, and would change places with it.
    And not to groups due later: a plan may find that all are in time either way, and predictions err.
    """
    first = _first(state, head)
    if first is None or not (node.yielding or node.hurried == first.gid):
        return []
    running = _running(state, node) if node.hurried == first.gid else _by_plan(state, node, first)
    return [
        group.gid
        for group in running
        if group.gid not in state.hand_overs
        and _gives_way(group, first)
        and (group.gid in node.yielding or _has_time(group, first))
    ]


def _running(state: State, node: Node) -> Iterator[Group]:
    """Those that run among the first groups of a queue; behind the last of them no group is looked at."""
    num_left = node.num_running
    for gid in islice(node.queue, MAX_LOOKED_AT):
        if num_left <= 0:
            break
        group = state.groups[gid]
        if group.running:
            num_left -= len(group.running)
            yield group


def _first(state: State, head: Sequence[GroupRef]) -> Group | None:
    """The first that may not wait until the batch has room."""
    return next((state.groups[ref.group] for ref in head if ref.max_running is None), None)


def _hurries_at_s(state: State, group: Group) -> float:
    promise_s = state.requests[next(iter(group.waiting))].slo.start_by_s(0.0)
    return group.start_by_s - HURRIED_SHARE * promise_s if promise_s <= PATIENCE_S else math.inf


def _by_plan(state: State, node: Node, first: Group) -> Iterator[Group]:
    wanted = set(node.yielding)
    behind = (state.groups[gid] for gid in node.queue[node.queue.index(first.gid) + 1 :] if gid in wanted)
    return (group for group in behind if group.running)


def _gives_way(runs: Group, waits: Group) -> bool:
    is_alike = (runs.model, runs.slo_kind) == (waits.model, waits.slo_kind)
    return not is_alike and waits.start_by_s < runs.start_by_s


def _has_time(runs: Group, waits: Group) -> bool:
    return runs.start_by_s - waits.start_by_s >= PATIENCE_S
