"""How many requests may run together at a node before those who run there fall behind what they were promised.

A step takes the longer the more requests are in the batch, so one that joins slows all others down. An engine fills its
batch, which is best for throughput; but answers of hundreds of tokens lose their promises in the batch rather than in
the queue. So who has time waits, where one more in the batch would do harm: where more than `MAX_LATE` of those who
stand at the node would be late because so many run together (`shared.estimator.harm`: of QLM's C = W + P + D,
SoCC'24 §5, with D = O ε d, this bounds ε d). Where no group is in a hurry, or none can be helped any more, nothing is
bounded, and the device does all that it can.

Requests are taken for typical ones of the model: the few that run at one node are a small sample, and by them the bound
would jump.

Who has time is patient: in time even if all at the node that is due before it is done first, at `SLOWEST` of the
node's pace. All others join as long as they fit. So do those that were found to harm none by that, each by itself,
when they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import BatchLimit, Node
from services.queue_manager.state.node_counts import promised_ends
from services.queue_manager.state.state import State
from shared.estimator.batching import batching
from shared.estimator.harm import harmless_batch

SLOWEST = 0.5  # of a full batch's throughput: who has time can wait for so slow a node
MAX_GROUPS = 64  # first groups with a waiting request: while a bound holds, none is pulled from behind them
STALE_S = 0.25  # who stands at a node changes slowly: a limit holds for so long


class BatchLimits:
    """Owns `Node.limit`, `Node.max_running` and `Node.patient`."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def look(self, node: Node, now: float) -> list[Group]:
        """Bring them up to date; O(`MAX_GROUPS` and the groups at the node), whatever waits.

        Answers the groups that were looked at (`first_groups`).
        """
        groups = first_groups(self._state, node)
        if not any(group.waiting for group in groups):
            node.max_running, node.patient = None, []
            return groups
        if node.limit is None or now >= node.limit.stale_at_s:
            most_running = self._most_running(node, now)
            behind = (0, 0) if most_running is None else self._with_slack_behind(node, groups, now)
            node.limit = BatchLimit(most_running, now + STALE_S, *behind)
        node.max_running = node.limit.max_running
        node.patient = _patient(groups, now) if node.max_running is not None else []
        return groups

    def _with_slack_behind(self, node: Node, first: Sequence[Group], now: float) -> tuple[int, int]:
        """Of groups behind the ``first`` that have slack though all at the node is done before them: requests, tokens.

        No request is pulled from there while a bound holds, so they are no members of the batch, however many they are.
        """
        num_requests = num_tokens = 0
        begins_s = now + node.drain_s / SLOWEST
        for gid in node.queue[len(first) :]:
            group = self._state.groups[gid]
            if group.waiting and group.start_by_s > begins_s:
                totals = group.waiting_totals
                num_requests += len(group.waiting)
                num_tokens += totals.prompt_tokens + totals.done_tokens
        return num_requests, num_tokens

    def _most_running(self, node: Node, now: float) -> int | None:
        """The size of the batch from which on one more does harm; None where none does, or nothing is known."""
        typical = self._groups.typical(node.model, now)
        if typical is None:
            return None
        return harmless_batch(batching(node.known, typical), promised_ends(node))


def first_groups(state: State, node: Node) -> list[Group]:
    """Of a queue, up to the last of the first `MAX_GROUPS` with a waiting request."""
    groups = state.groups
    first: list[Group] = []
    num_waiting = 0
    for gid in node.queue:
        group = groups[gid]
        if group.waiting:
            num_waiting += 1
            if num_waiting > MAX_GROUPS:
                break
        first.append(group)
    return first


def slacks_s(groups: Sequence[Group], now: float) -> dict[str, float]:
    """For how long each group can wait, due first first: who waits in one with more than 0 is patient.

    None at all where its requests begin at once.
    """
    slacks: dict[str, float] = {}
    ahead_s = 0.0
    for group in sorted(groups, key=attrgetter("start_by_s")):
        ahead_s += group.drain_s
        slacks[group.gid] = 0.0 if begins_at_once(group) else _slack_s(group, ahead_s, now)
    return slacks


def _patient(groups: Sequence[Group], now: float) -> list[str]:
    """Groups of which a request waits and all have time, due first first."""
    patient: list[str] = []
    ahead_s = 0.0
    for group in sorted(groups, key=attrgetter("start_by_s")):
        ahead_s += group.drain_s
        if group.waiting and not begins_at_once(group) and _slack_s(group, ahead_s, now) > 0.0:
            patient.append(group.gid)
    return patient


def _slack_s(group: Group, ahead_s: float, now: float) -> float:
    """``ahead_s``: of work that is due before its last member, its own included."""
    return group.start_by_s - now - ahead_s / SLOWEST


def begins_at_once(group: Group) -> bool:
    """Whether its requests came to begin at a node, rather than to wait anywhere."""
    return bool(group.key.place) and not group.key.root
