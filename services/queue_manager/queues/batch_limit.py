"""How many requests may run together at a node before those that run there fall behind their promises.

A step takes the longer the more requests are in the batch, so one that joins slows all others down. An engine fills its
batch, which is best for throughput; but answers of hundreds of tokens lose their promises in the batch rather than in
the queue. So a request with slack waits, where the batch is as large as its members' promises allow. With b requests as
they come for its model, an output token takes (`shared.estimator.batching`; each request brings its prompt along) ::

    token_s(b) = step_s + b E[row_s + prompt_rows_s / o]

and an answer of n tokens that was promised within t seconds asks for ``token_s(b) <= t / n``: of QLM's C = W + P + D,
D = O ε d (SoCC'24 §5), this bounds ε d. Yet at the b where the weights take half of a step, a smaller batch costs more
throughput than it gains pace; a promise that asks for less than that cannot be helped, and bounds nothing below it.

The mean E is over what has come for the model of late, each kind as often as it is met in a batch: by the number of its
requests times the tokens of their answers (Little's law: it stays as long as its answer is). The few that run at one
node are a small sample of that: by them the bound would jump by a multiple, and differ between nodes that are alike.

A group with slack is patient: in time even if all at the node that is due before it is done first, at `SLOWEST` of the
node's pace. All others join as long as they fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.state import BatchLimit, Group, Node, State
from shared.estimator.answer import long_answer_tokens
from shared.estimator.batching import batching
from shared.messages.slo import Slo

SLOWEST = 0.5  # of a full batch's throughput: as much as the smallest bound leaves, see above
LEARNING_S = 1.0  # lengths and costs are learnt slowly: what follows from them holds for so long
MAX_GROUPS = 64  # first groups with waiting requests: while a bound holds, none is pulled from behind them


class AverageRequest(NamedTuple):
    """An average request in a batch."""

    places: float
    """Of the batch, that one takes."""
    added_s: float
    """Seconds that one adds to a step, its prompt spread over its answer."""


class BatchLimits:
    """Owns `Node.bounds`, `Node.max_running` and `Node.patient`."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def look(self, node: Node, now: float) -> list[Group]:
        """Bring them up to date; O(`MAX_GROUPS` and the places of a batch), whatever waits.

        Answers the groups that were looked at (`first_groups`).
        """
        groups = first_groups(self._state, node)
        node.bounds = self._bounds(node, groups, now)
        bounds = [bound.max_running for bound in node.bounds.values() if bound.max_running is not None]
        node.max_running = min(bounds, default=None)
        node.patient = _patient(groups, now) if bounds else []
        return groups

    def _bounds(self, node: Node, groups: list[Group], now: float) -> dict[str, BatchLimit]:
        """What each kind of promise allows, of those that run.

        One group speaks for the promise of its kind; resumed ones know only what is left of their answers.
        """
        bounds: dict[str, BatchLimit] = {}
        for group in groups:
            if group.running and not group.root and group.slo_kind not in bounds:
                bound = node.bounds.get(group.slo_kind)
                if bound is None or now >= bound.stale_at_s:
                    bound = BatchLimit(self._most_running(node, group, now), now + LEARNING_S)
                bounds[group.slo_kind] = bound
        return bounds

    def _mix(self, node: Node, now: float) -> AverageRequest | None:
        """An average request of its model: what has come of late, each kind as often as it is met in a batch.

        None where nothing has come, or the node has told nothing of what its steps cost.
        """
        number = places = added_s = 0.0
        for shape, flow in self._groups.expected_newcomers(node.model):
            work = batching(node.known, shape)
            met = flow.num_at(now) * work.output_tokens
            number += met
            places += met / work.batch
            added_s += met * (work.row_s + work.prompt_rows_s / work.output_tokens)
        return AverageRequest(places / number, added_s / number) if added_s > 0.0 else None

    def _most_running(self, node: Node, group: Group, now: float) -> int | None:
        load = self._groups.load(group, now)
        work = batching(node.known, load)
        pace_s = _pace_s(self._state.requests[next(iter(group.running))].slo, long_answer_tokens(work, load.max_tokens))
        mix = self._mix(node, now) if pace_s is not None else None
        if pace_s is None or mix is None:
            return None
        bound = max(1, int(max(work.step_s, pace_s - work.step_s) / mix.added_s))
        return bound if bound * mix.places < 1.0 else None


def first_groups(state: State, node: Node) -> list[Group]:
    """Of a queue, up to the last of the first `MAX_GROUPS` with waiting requests."""
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


def _pace_s(slo: Slo, long_tokens: float) -> float | None:
    """Seconds that an output token may take; None where only the start was promised."""
    paces_s = [slo.tpot_s, slo.deadline_s / long_tokens if slo.deadline_s is not None else None]
    return min((pace_s for pace_s in paces_s if pace_s is not None), default=None)


def slacks_s(groups: Sequence[Group], now: float) -> dict[str, float]:
    """For how long each group can wait, due first first: one with more than 0 is patient."""
    slacks: dict[str, float] = {}
    ahead_s = 0.0
    for group in sorted(groups, key=attrgetter("start_by_s")):
        ahead_s += group.drain_s
        slacks[group.gid] = _slack_s(group, ahead_s, now)
    return slacks


def _patient(groups: Sequence[Group], now: float) -> list[str]:
    """Groups with waiting requests, all of which have slack, due first first."""
    patient: list[str] = []
    ahead_s = 0.0
    for group in sorted(groups, key=attrgetter("start_by_s")):
        ahead_s += group.drain_s
        if group.waiting and _slack_s(group, ahead_s, now) > 0.0:
            patient.append(group.gid)
    return patient


def _slack_s(group: Group, ahead_s: float, now: float) -> float:
    """``ahead_s``: of work that is due before its last member, its own included."""
    return group.start_by_s - now - ahead_s / SLOWEST
