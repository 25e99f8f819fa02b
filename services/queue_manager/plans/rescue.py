"""Why no request starves, whatever the load: one that is far too late goes first in the end.

Under a load that never ends and is more than the nodes can do, all requests get late, and a cost of lateness that grows
faster than linearly does not settle which waits for ever: a single request that needs a swap may cost the many that
would wait for it more at any time. So one rule stands above the plans: of those that wait at a node, the one that is
due first goes to the front once it is late by more than OVERDUE_S, and stays there until it has begun. There is one
such group in RESCUE_INTERVAL_S, which bounds what its swaps cost the others. Hence the k-th in the order of the times
at which they are due begins within ``OVERDUE_S + k RESCUE_INTERVAL_S`` of its own, and what runs then, a load that has
begun with the groups for which it is made, and the next plan (at most `planning.WAITING_INTERVAL_S`), take; newcomers
are due later, so none can get before it for ever. Each group is due at some time: one without a promise within a day
(`shared.messages.requests.slo.UNBOUNDED_S`).
"""

from __future__ import annotations

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import forget_promises
from services.queue_manager.state.state import State

OVERDUE_S = 60.0  # beyond the time by which it must have started
RESCUE_INTERVAL_S = 60.0  # at one node


def rescue(state: State, node: Node, now: float) -> None:
    """Put the group to the front whose turn it is, after a plan has ordered the queue."""
    waiting = [state.groups[gid] for gid in node.queue if state.groups[gid].waiting and gid not in state.hand_overs]
    chosen = next((group for group in waiting if group.gid == node.rescued and not group.running), None)
    if chosen is None and now >= node.rescued_at_s + RESCUE_INTERVAL_S:
        chosen = _overdue(waiting, now)
        if chosen is not None:
            node.rescued, node.rescued_at_s = chosen.gid, now
    if node.known.is_loading:  # a load that has begun goes on: the groups for which it is made stay in front of it
        waiting = [group for group in waiting if group.model != node.model]
    if chosen in waiting and chosen is not waiting[0]:
        node.queue.remove(chosen.gid)
        node.queue.insert(node.queue.index(waiting[0].gid), chosen.gid)
        forget_promises(node)


def _overdue(waiting: list[Group], now: float) -> Group | None:
    """The group that is due first, if it is too late for patience and has not begun."""
    first = min(waiting, key=lambda group: (group.start_by_s, group.gid), default=None)
    if first is None or first.running or now <= first.start_by_s + OVERDUE_S:
        return None
    return first
