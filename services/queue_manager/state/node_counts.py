"""Requests at a node, as a newcomer meets them that would begin there at once: how many, and how urgent they are.

Their number is kept up, and that of those that run. What they were promised is summed up when a newcomer asks and kept
until something changes, which at most nodes nothing has: kept up by steps, a sum of floats would drift, and depend on
the order of events. Which ends were promised at all is counted, group by group. These functions own `Node.num_members`,
`Node.num_running`, `Node.shares`, `Node.promised`, `Node.promises` and `Group.promise`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node, Promises, TenantShare
from services.queue_manager.state.state import State
from shared.estimator.batching import num_seqs
from shared.estimator.harm import PromisedEnd
from shared.messages.requests.slo import Slo

PATIENCE_S = 120.0  # no client likes to wait: a promise that is further away counts as this


class MembersWithSlack(NamedTuple):
    """Of a node: those who wait until its batch has room, because they have time."""

    num_requests: int
    known_tokens: int
    """Of their prompts, and of their answers where they were evicted or lost."""


NOTHING_HELD = MembersWithSlack(0, 0)


def is_full(node: Node) -> bool:
    """Whether those at the node take all places of its batch, whatever their lengths."""
    return node.num_members >= num_seqs(node.known)


def promises(state: State, node: Node) -> Promises:
    """What its members were promised, summed up.

    O(1) where nothing has changed, else O(groups at the node): ask for one that is not full.
    """
    if node.promises is None:
        node.promises = summed_promises(state, node)
    return node.promises


def with_slack(state: State, node: Node) -> MembersWithSlack:
    """Those who wait there until the batch has room, because they have time: they take no place from who has none.

    Behind the groups that are looked at each time as many as there were when the bound was worked out: who has moved up
    since then counts twice until it is worked out again.
    """
    num_behind, tokens_behind = 0, 0
    if node.max_running is not None and node.limit is not None:
        num_behind, tokens_behind = node.limit.num_behind, node.limit.tokens_behind
    groups = [group for gid in node.patient if (group := state.groups.get(gid)) is not None and group.node == node.node]
    totals = [group.waiting_totals for group in groups]
    return MembersWithSlack(
        num_behind + sum(group.num_waiting for group in groups),
        tokens_behind + sum(one.prompt_tokens + one.done_tokens for one in totals),
    )


def forget_promises(node: Node) -> None:
    """Its queue has changed, or what it serves."""
    node.promises = None


def note_members(state: State, group: Group, num_more: int, num_more_running: int) -> None:
    """So many more requests of a group stand in the queue of its node, if it has one; and so many more run there."""
    node = state.nodes.get(group.node)
    if node is not None:
        node.num_members += num_more
        node.num_running += num_more_running
        node.promises = None
        share = node.shares.get(group.tenant)
        if share is None:
            share = node.shares[group.tenant] = TenantShare()
        share.num_members += num_more
        share.num_running += num_more_running


def recount(state: State) -> None:
    """Count all members: a snapshot of an earlier version does not tell."""
    for group in state.groups.values():
        group.promise = _promise(state, group)
    for node in state.nodes.values():
        promised = counted_promised(state, node)
        node.promised = {key: promised[key] for key in (*node.promised, *promised) if key in promised}
        node.num_members = counted_members(state, node)
        node.num_running = counted_running(state, node)
        counted = counted_shares(state, node)
        for tenant, share in node.shares.items():  # in their order, so that a snapshot that is read is written again
            found = counted.pop(tenant, TenantShare())
            share.num_members, share.num_running = found.num_members, found.num_running
        node.shares |= counted


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


def summed_promises(state: State, node: Node) -> Promises:
    """By a walk. The first member of a group speaks for it: promises of one kind are alike."""
    groups, requests, model = state.groups, state.requests, node.model
    first = next((groups[gid] for gid in node.queue if groups[gid].waiting), None)
    is_leaving = bool(node.awaits) or (first is not None and first.model != model)
    per_s, known_tokens = math.inf if is_leaving else 0.0, 0
    patience: dict[int, tuple[float, PromisedEnd]] = {}  # by promise: equal ones are one object (`interning`)
    kinds: dict[PromisedEnd, int] = {}
    for gid in reversed(node.queue):
        group = groups[gid]
        if group.model != model:
            continue
        waiting, running = group.waiting, group.running
        slo = requests[next(iter(waiting or running))].slo
        known = patience.get(id(slo))
        if known is None:
            known = patience[id(slo)] = min(PATIENCE_S, slo.start_by_s(0.0)), promised_end(slo)
        patience_s, kind = known
        number = len(waiting) + len(running)
        per_s += number / patience_s
        kinds[kind] = kinds.get(kind, 0) + number
        waits, runs = group.waiting_totals, group.running_totals
        known_tokens += waits.prompt_tokens + waits.done_tokens + runs.prompt_tokens + runs.done_tokens
    return Promises(per_s, [(end_s, token_s, number) for (end_s, token_s), number in kinds.items()], known_tokens)


def promised_ends(node: Node) -> Iterator[PromisedEnd]:
    """What groups of the node's model were promised, each kind once: as in `promises`, without a walk."""
    return ((end_s, token_s) for model, end_s, token_s in node.promised if model == node.model)


def note_place(node: Node, group: Group, num_more: int) -> None:
    """The group comes to the node's queue (1), or leaves it (-1)."""
    if group.promise is None:
        return
    key = (group.model, *promised_end(group.promise))
    number = node.promised.get(key, 0) + num_more
    if number:
        node.promised[key] = number
    else:
        del node.promised[key]


def note_promise(state: State, group: Group, promise: Slo) -> None:
    """Another member of the group is the first."""
    if promise is group.promise or promise == group.promise:
        return
    node = state.nodes.get(group.node)
    if node is not None:
        note_place(node, group, -1)
    group.promise = promise
    if node is not None:
        note_place(node, group, 1)


def counted_promised(state: State, node: Node) -> dict[tuple[str, float, float], int]:
    """Groups by model and promised end, by a walk."""
    return Counter((group.model, *promised_end(_promise(state, group))) for group in _queue(state, node))


def _promise(state: State, group: Group) -> Slo:
    return state.requests[next(iter(group.waiting or group.running))].slo


def _queue(state: State, node: Node) -> Iterator[Group]:
    return (state.groups[gid] for gid in node.queue)


def promised_end(slo: Slo) -> PromisedEnd:
    """What a request was promised of its end."""
    return (
        math.inf if slo.deadline_s is None else slo.deadline_s,
        math.inf if slo.tpot_s is None else slo.tpot_s,
    )
