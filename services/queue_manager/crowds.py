"""Who stands at a node, as a newcomer meets them that would begin there at once: how many, and how urgent they are.

At most nodes nothing has changed since the last newcomer looked, so what was counted is kept until something does. It
is forgotten rather than kept up: sums of floats would drift, and depend on the order of events. These functions own
`Node.crowd`.
"""

from __future__ import annotations

from services.queue_manager.state import Crowd, Node, State
from shared.batching import num_seqs

PATIENCE_S = 120.0  # nobody likes to wait: a promise that is further away counts as this


def crowd_at(state: State, node: Node) -> Crowd:
    """O(1) where nothing has changed, else O(groups that fit into a batch)."""
    if node.crowd is None:
        node.crowd = counted(state, node)
    return node.crowd


def note_change(state: State, name: str) -> None:
    """A queue has changed, or the members of a group in it, or its node is known better; ``""`` stands for no node."""
    node = state.nodes.get(name)
    if node is not None:
        node.crowd = None


def counted(state: State, node: Node) -> Crowd:
    """By a walk. The first member of a group speaks for it: promises of one kind are alike."""
    groups, requests = state.groups, state.requests
    most, model = num_seqs(node.known), node.model
    num_members, per_s = 0, 0.0
    for gid in reversed(node.queue):  # where many wait, that shows at once
        group = groups[gid]
        waiting, running = group.waiting, group.running
        num_here = len(waiting) + len(running)
        num_members += num_here
        if num_members >= most or group.model != model:
            return Crowd(None)
        per_s += num_here / min(PATIENCE_S, requests[next(iter(waiting or running))].slo.start_by_s(0.0))
    return Crowd(num_members, per_s)
