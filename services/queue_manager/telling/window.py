"""What a node sees of its virtual queue: the groups that it may pull from, and models that no node can load."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from services.queue_manager.queues.batch_limit import first_groups
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import PATIENCE_S
from services.queue_manager.state.state import State
from shared.estimator.batching import most_step_tokens
from shared.messages.requests.requests import GroupRef

WINDOW_REQUESTS = 64  # waiting requests that a node sees ahead: enough for its largest pull
WINDOW_GROUPS = 32  # bounds the message where groups are small
# Of the prompts that one step reads, those that a tenant above its share may have unread: a step full of them is twice
# as long as one that draws tokens, and another tenant's request waits for the one that runs and for the one behind it.
HELD_BACK_PROMPTS = 1 / 2
# While requests come whose first token is due so soon, groups with time have so many steps of prompts unread at most:
# one that is computed, and one to follow.
TIGHT_S = 5.0
TIGHT_STEPS = 2
TIGHT_SEEN_S = 60.0  # one that came so lately is expected back


def window(state: State, node: Node, first: list[Group] | None = None) -> list[GroupRef]:
    """The first groups of a queue with waiting requests. No node pulls from a group that is handed over.

    Groups that may have to wait for headroom do not hide those behind them: of each sort there are enough. Those that
    `batch_limit` does not look at do not overtake the ones that it has told to wait, nor those of tenants held back:
    a tenant below its share is favoured wherever it stands. ``first``: those that it does look at, where at hand.
    """
    head: list[GroupRef] = []
    patient, held_back = set(node.patient), set(node.held_back)
    num_seen = {True: 0, False: 0}
    for group in _in_turn(state, node, first):
        if not group.waiting:
            continue
        gid = group.gid
        if gid in state.hand_overs:
            continue
        beside = _beside(node, group, is_patient=gid in patient, is_held_back=group.tenant in held_back)
        may_wait = beside is not None
        if num_seen[may_wait] >= WINDOW_REQUESTS:
            continue
        num_waiting = len(group.waiting)
        prompts = _beside_prompts(state, node, group, may_wait=may_wait)
        head.append(GroupRef(gid, group.model, num_waiting, beside, prompts))
        num_seen[may_wait] += num_waiting
        if num_seen[False] >= WINDOW_REQUESTS or len(head) == WINDOW_GROUPS:
            break
    return head


def _in_turn(state: State, node: Node, first: list[Group] | None) -> Iterable[Group]:
    """The groups of a queue that count: the one in a hurry first, then those of tenants below their share."""
    groups: Iterable[Group] = (state.groups[gid] for gid in node.queue)
    if node.max_running is not None or node.held_back:
        groups = first_groups(state, node) if first is None else first
    ahead = [*([node.hurried] if node.hurried else []), *node.favoured]
    if not ahead:
        return groups
    favoured = {gid: state.groups[gid] for gid in ahead if is_at(state, node, gid)}
    return itertools.chain(favoured.values(), (group for group in groups if group.gid not in favoured))


def is_at(state: State, node: Node, gid: str) -> bool:
    """Whether there is the group, and it stands at this node."""
    group = state.groups.get(gid)
    return group is not None and group.node == node.node


def _beside(node: Node, group: Group, *, is_patient: bool, is_held_back: bool) -> int | None:
    """Requests beside which members of a group may begin; None: as many as fit.

    A tenant below its share waits for none; one above it leaves room, and keeps the batch's pace though it be late.
    """
    if not node.held_back:
        return node.max_running if is_patient else None
    return node.beside if is_held_back and group.model == node.model else None


def _beside_prompts(state: State, node: Node, group: Group, *, may_wait: bool) -> int | None:
    """Prompts beside which those of a group may be pulled; None: any number.

    A tenant below its share is never behind more than `HELD_BACK_PROMPTS` of a step of others' prompts, and still takes
    no more places than it should before the node has been told that it has its share. Where no tenants compete, but
    tight promises are given, a group that has time keeps the node's steps full and no more: when many answers end
    together, as many prompts of such a group would be pulled, and a newcomer wait until all of them are computed.
    """
    if group.model != node.model:
        return None
    if node.max_unread is not None:
        return max(1, int(HELD_BACK_PROMPTS * node.max_unread)) if may_wait else 2 * node.max_unread
    step_tokens, first = most_step_tokens(node.known, node.model), state.requests[next(iter(group.waiting))]
    if not step_tokens or first.slo.start_by_s(0.0) <= PATIENCE_S or not _is_tight(state, node.model):
        return None
    mean_prompt_tokens = group.waiting_totals.prompt_tokens / len(group.waiting)
    return max(1, int(TIGHT_STEPS * step_tokens / max(1.0, mean_prompt_tokens)))


def _is_tight(state: State, model: str) -> bool:
    """Whether requests of a model have come of late whose first token was promised within `TIGHT_S`, on average."""
    return any(
        flow.model == model and flow.patience_s <= TIGHT_S * flow.num and state.now_s - flow.seen_s <= TIGHT_SEEN_S
        for flow in state.flows.values()
    )


def hopeless(state: State, node: Node, head: list[GroupRef]) -> list[str]:
    """Models of ``head`` that this node could not load, and no other either."""
    if not node.known.broken_models:
        return []
    broken = {ref.model for ref in head} & set(node.known.broken_models)
    others = [set(other.known.broken_models) for other in state.nodes.values()] if broken else []
    return sorted(model for model in broken if all(model in other for other in others))
