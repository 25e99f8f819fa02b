"""What a node sees of its virtual queue: the groups that it may pull from, and those that have to give way to them."""

from __future__ import annotations

from collections.abc import Iterable

from services.queue_manager.headroom import first_groups
from services.queue_manager.state import Group, Node, State
from shared.requests import GroupRef

WINDOW_REQUESTS = 64  # waiting requests that a node sees ahead: enough for its largest pull
WINDOW_GROUPS = 32  # bounds the message where groups are small


def window(state: State, node: Node, first: list[Group] | None = None) -> list[GroupRef]:
    """The first groups of a queue in which somebody waits. Nobody pulls from a group that is handed over.

    Groups that may have to wait for headroom do not hide those behind them: of each sort there are enough. Those that
    `headroom` does not look at do not overtake the ones that it has told to wait. ``first``: those that it does look
    at, where they are at hand.
    """
    head: list[GroupRef] = []
    patient = set(node.patient)
    num_seen = {True: 0, False: 0}
    groups: Iterable[Group] = (state.groups[gid] for gid in node.queue)
    if node.max_running is not None:
        groups = first_groups(state, node) if first is None else first
    for group in groups:
        if not group.waiting:
            continue
        gid = group.gid
        if gid in state.hand_overs:
            continue
        is_patient = gid in patient
        if num_seen[is_patient] >= WINDOW_REQUESTS:
            continue
        num_waiting = len(group.waiting)
        head.append(GroupRef(gid, group.model, num_waiting, node.max_running if is_patient else None))
        num_seen[is_patient] += num_waiting
        if num_seen[False] >= WINDOW_REQUESTS or len(head) == WINDOW_GROUPS:
            break
    return head


def yielding(state: State, node: Node, head: list[GroupRef]) -> list[str]:
    """Groups that the plan has give way, as far as they run behind the first of ``head`` that may not wait; in order.

    Not to their like: who was evicted waits in front of the rest of the old group, and would change places with it. And
    not to who is due later: a plan may find that all are in time either way, and predictions err.
    """
    first_ref = next((ref for ref in head if ref.max_running is None), None)
    if not node.yielding or first_ref is None:
        return []
    wanted = {gid for gid in node.yielding if gid not in state.hand_overs}
    if not wanted:
        return []
    behind = node.queue[node.queue.index(first_ref.group) + 1 :]
    first = state.groups[first_ref.group]
    running = [gid for gid in behind if gid in wanted and state.groups[gid].running]
    return [gid for gid in running if _gives_way(state.groups[gid], first)]


def hopeless(state: State, node: Node, head: list[GroupRef]) -> list[str]:
    """Models of ``head`` that this node could not load, and no other either."""
    if not node.known.broken_models:
        return []
    broken = {ref.model for ref in head} & set(node.known.broken_models)
    others = [set(other.known.broken_models) for other in state.nodes.values()] if broken else []
    return sorted(model for model in broken if all(model in other for other in others))


def _gives_way(runs: Group, waits: Group) -> bool:
    is_alike = (runs.model, runs.slo_kind) == (waits.model, waits.slo_kind)
    return not is_alike and waits.start_by_s < runs.start_by_s
