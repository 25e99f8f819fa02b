"""How many requests may run together at a node before those who run there fall behind what they were promised.

A step takes the longer the more requests are in the batch, so whoever joins slows all others down. An engine fills its
batch, which is best for throughput; but answers of hundreds of tokens lose their promises in the batch rather than in
the queue. So who has time waits, where the batch is as large as its members' promises allow. With b requests like
those that run, an output token takes (`shared.batching`; each request brings its prompt along) ::

    token_s(b) = step_s + b (row_s + prompt_rows_s / o)

and an answer of n tokens that was promised within t seconds asks for ``token_s(b) <= t / n``: of QLM's C = W + P + D,
D = O ε d (SoCC'24 §5), this bounds ε d. Yet at the b where the weights take half of a step, a smaller batch costs more
throughput than it gains pace; a promise that asks for less than that cannot be helped, and bounds nothing below it.

Who has time is patient: in time even if all at the node that is due before it is done first, at `SLOWEST` of the
node's pace. All others join as long as they fit.
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Bound, Group, Node, State
from shared.answer import long_answer_tokens
from shared.batching import batching
from shared.slo import Slo

SLOWEST = 0.5  # of a full batch's throughput: as much as the smallest bound leaves, see above
LEARNING_S = 1.0  # lengths and costs are learnt slowly: what follows from them holds for so long
MAX_GROUPS = 64  # at the head of a queue that are looked at; who stands behind them is not patient


class Mix(NamedTuple):
    """Means over the requests that run at a node."""

    batch: float
    """As many like these fit."""
    step_s: float
    """Of each step: reading the weights."""
    added_s: float
    """What each adds to a step, its prompt spread over its answer."""


class Headroom:
    """Owns `Node.bounds`, `Node.max_running` and `Node.patient`."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def look(self, node: Node, now: float) -> None:
        """Bring them up to date; O(`MAX_GROUPS`), whatever waits."""
        groups = [self._state.groups[gid] for gid in node.queue[:MAX_GROUPS]]
        node.bounds = self._bounds(node, groups, now)
        bounds = [bound.max_running for bound in node.bounds.values() if bound.max_running is not None]
        node.max_running = min(bounds, default=None)
        node.patient = _patient(groups, now) if bounds else []

    def _bounds(self, node: Node, groups: list[Group], now: float) -> dict[str, Bound]:
        """What each kind of promise allows, of those that run.

        One group speaks for its kind; resumed ones know only what is left of their answers.
        """
        bounds: dict[str, Bound] = {}
        mix: Mix | None = None
        for group in groups:
            if group.running and not group.root and group.slo_kind not in bounds:
                bound = node.bounds.get(group.slo_kind)
                if bound is None or now >= bound.stale_at_s:
                    mix = mix or self._mix(node, groups, now)
                    bound = Bound(self._most_running(node, group, mix, now), now + LEARNING_S)
                bounds[group.slo_kind] = bound
        return bounds

    def _mix(self, node: Node, groups: list[Group], now: float) -> Mix:
        """Of all that runs: a batch is seldom full of one group's requests."""
        running = [(group, batching(node.known, self._groups.load(group, now))) for group in groups if group.running]
        number = sum(group.num_running for group, _ in running)
        places = fsum(group.num_running / work.batch for group, work in running)
        added_s = fsum(
            group.num_running * (work.row_s + work.prompt_rows_s / work.output_tokens) for group, work in running
        )
        return Mix(number / places, running[0][1].step_s, added_s / number)

    def _most_running(self, node: Node, group: Group, mix: Mix, now: float) -> int | None:
        load = self._groups.load(group, now)
        work = batching(node.known, load)
        pace_s = _pace_s(self._state.requests[next(iter(group.running))].slo, long_answer_tokens(work, load.max_tokens))
        if pace_s is None or mix.added_s <= 0.0:
            return None
        bound = max(1, int(max(mix.step_s, pace_s - mix.step_s) / mix.added_s))
        return bound if bound < mix.batch else None


def _pace_s(slo: Slo, long_tokens: float) -> float | None:
    """Seconds that an output token may take; None where only the start was promised."""
    paces_s = [slo.tpot_s, slo.deadline_s / long_tokens if slo.deadline_s is not None else None]
    return min((pace_s for pace_s in paces_s if pace_s is not None), default=None)


def _patient(groups: list[Group], now: float) -> list[str]:
    """Those of which somebody waits and all have time, due first first."""
    patient: list[str] = []
    ahead_s = 0.0
    for group in sorted(groups, key=lambda group: group.start_by_s):
        ahead_s += group.drain_s
        if group.waiting and now + ahead_s / SLOWEST < group.start_by_s:
            patient.append(group.gid)
    return patient
