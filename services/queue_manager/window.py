"""What a node sees of its virtual queue: the groups that it may pull from, and those that have to give way to them."""

from __future__ import annotations

from collections.abc import Set

from services.queue_manager.state import Group, Node, State
from shared.messages import GroupRef

WINDOW_REQUESTS = 64  # waiting requests that a node sees ahead: enough for its largest pull
WINDOW_GROUPS = 32  # bounds the message where groups are small


def window(state: State, node: Node, bound: int | None = None, patient: Set[str] = frozenset()) -> list[GroupRef]:
    """The first groups of a queue in which somebody waits. Nobody pulls from a group that is handed over."""
    head: list[GroupRef] = []
    num_waiting = 0
    for gid in node.queue:
        group = state.groups[gid]
        if group.waiting and gid not in state.hand_overs:
            is_held = bound is not None and gid in patient
            head.append(GroupRef(gid, group.model, group.num_waiting, bound if is_held else None))
            num_waiting += 0 if is_held else group.num_waiting
            if num_waiting >= WINDOW_REQUESTS or len(head) == WINDOW_GROUPS:
                break
    return head


def yielding(state: State, node: Node, head: list[GroupRef]) -> list[str]:
    """Groups that the plan has give way, as far as they still run behind the first of ``head``; in order.

    Not to their like: who was evicted waits in front of the rest of the old group, and would change places with it. And
    not to who is due later: a plan may find that all are in time either way, and predictions err.
    """
    if not (node.yielding and head):
        return []
    wanted = {gid for gid in node.yielding if gid not in state.hand_overs}
    if not wanted:
        return []
    behind = node.queue[node.queue.index(head[0].group) + 1 :]
    first = state.groups[head[0].group]
    running = [gid for gid in behind if gid in wanted and state.groups[gid].running]
    return [gid for gid in running if _gives_way(state.groups[gid], first)]


def hopeless(state: State, node: Node, head: list[GroupRef]) -> list[str]:
    """Models of ``head`` that this node could not load, and no other either."""
    broken = {ref.model for ref in head} & set(node.known.broken_models)
    others = [set(other.known.broken_models) for other in state.nodes.values()] if broken else []
    return sorted(model for model in broken if all(model in other for other in others))


def _gives_way(runs: Group, waits: Group) -> bool:
    is_alike = (runs.model, runs.slo_kind) == (waits.model, waits.slo_kind)
    return not is_alike and waits.start_by_s < runs.start_by_s
