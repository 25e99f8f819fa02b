"""Requests at a node, as a newcomer meets them that would begin there at once: how many, and how urgent they are.

Their number is kept up, and that of those that run. What they were promised is summed up when a newcomer asks and kept
until something changes, which at most nodes nothing has: kept up by steps, a sum of floats would drift, and depend on
the order of events. These functions own `Node.num_members`, `Node.num_running`, `Node.shares` and
`Node.promises_per_s`.
"""

from __future__ import annotations

import math

from services.queue_manager.state.state import Group, Node, State, TenantShare
from shared.estimator.batching import num_seqs

PATIENCE_S = 120.0  # no client likes to wait: a promise that is further away counts as this


def is_full(node: Node) -> bool:
    """Whether those at the node take all places of its batch, whatever their lengths."""
    return node.num_members >= num_seqs(node.known)


def promises_per_s(state: State, node: Node) -> float:
    """Σ 1 / promise of its members; infinite where another model than the node's stands in its queue.

    O(1) where nothing has changed, else O(groups at the node): ask for one that is not full.
    """
    if node.promises_per_s is None:
        node.promises_per_s = summed_promises_per_s(state, node)
    return node.promises_per_s


def forget_promises(node: Node) -> None:
    """Its queue has changed, or what it serves."""
    node.promises_per_s = None


def note_members(state: State, group: Group, num_more: int, num_more_running: int) -> None:
    """So many more requests of a group stand in the queue of its node, if it has one; and so many more run there."""
    node = state.nodes.get(group.node)
    if node is not None:
        node.num_members += num_more
        node.num_running += num_more_running
        node.promises_per_s = None
        share = node.shares.get(group.tenant)
        if share is None:
            share = node.shares[group.tenant] = TenantShare()
        share.num_members += num_more
        share.num_running += num_more_running


def recount(state: State) -> None:
    """Count all members: a snapshot of an earlier version does not tell."""
    for node in state.nodes.values():
        node.num_members = counted_members(state, node)
        node.num_running = counted_running(state, node)
        for tenant, share in counted_shares(state, node).items():
            share.seen_s = node.shares.pop(tenant, share).seen_s
            node.shares[tenant] = share


def counted_members(state: State, node: Node) -> int:
    """By a walk."""
    return sum(state.groups[gid].num_members for gid in node.queue)


def counted_running(state: State, node: Node) -> int:
    """Those that run in its groups, by a walk."""
    return sum(state.groups[gid].num_running for gid in node.queue)


def counted_shares(state: State, node: Node) -> dict[str, TenantShare]:
    """What each tenant has there, by a walk."""
    shares: dict[str, TenantShare] = {}
    for gid in node.queue:
        group = state.groups[gid]
        share = shares.setdefault(group.tenant, TenantShare())
        share.num_members += group.num_members
        share.num_running += group.num_running
    return shares


def summed_promises_per_s(state: State, node: Node) -> float:
    """By a walk. The first member of a group speaks for it: promises of one kind are alike."""
    groups, requests, model = state.groups, state.requests, node.model
    per_s = 0.0
    for gid in reversed(node.queue):
        group = groups[gid]
        if group.model != model:
            return math.inf
        waiting, running = group.waiting, group.running
        promise_s = requests[next(iter(waiting or running))].slo.start_by_s(0.0)
        per_s += (len(waiting) + len(running)) / min(PATIENCE_S, promise_s)
    return per_s
