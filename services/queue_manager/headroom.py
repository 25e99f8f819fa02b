"""How many requests may run together at a node before those who run there fall behind what they were promised.

A step's time grows with its batch, so whoever joins one slows down all who are in it. Engines fill their batches, which
is best for throughput; but where answers take seconds, most promises are lost in the batch and not in the queue. So a
request that has time does not join a batch that would become too slow for the promises in it. With b requests like
those that run, a token takes (`shared.batching`: the steps' own time, and b times what each member adds to them) ::

    token_s(b) = step_s + b (row_s + prompt_rows_s / o)

and a promise of t seconds to an answer of n tokens asks for token_s <= t / n (QLM, SoCC'24 §5: C = W + P + D, D = O ε d,
kept by bounding ε d). Answers differ: n is a long one of its kind, `LONG_STDS` standard deviations above the mean.

Patient is who would be in time behind all that is at the node, done at a fraction of its throughput. Everybody else
goes first and fills the batch: a promise that can be kept now is worth more than the pace of the others.
"""

from __future__ import annotations

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Group, Node, State
from shared.batching import batching
from shared.messages import GroupRef

LONG_STDS = 1.5
PATIENCE = 2.0
MAX_LOOKED_AT = 64


class Headroom:
    """Owns nothing."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def look(self, node: Node, now: float) -> tuple[int | None, set[str]]:
        bound = self.most_running(node, now)
        if bound is None:
            return None, set()
        groups = sorted((self._state.groups[gid] for gid in node.queue[:MAX_LOOKED_AT]), key=lambda g: g.start_by_s)
        ahead_s = 0.0
        patient = set()
        for group in groups:
            ahead_s += group.drain_s
            if group.start_by_s - now > PATIENCE * ahead_s:
                patient.add(group.gid)
        return bound, patient

    def most_running(self, node: Node, now: float) -> int | None:
        """None: as many as fit"""
        kinds: dict[str, Group] = {}
        for gid in node.queue[:MAX_LOOKED_AT]:
            group = self._state.groups[gid]
            if group.running and group.model == node.model:
                kinds.setdefault(group.slo_kind, group)
        least = None
        for group in kinds.values():
            slo = self._state.requests[next(iter(group.running))].slo
            load = self._groups.load(group, now)
            work = batching(node.known, load)
            long_tokens = work.output_tokens + LONG_STDS * work.std_output_tokens
            pace_s = slo.start_by_s(0.0) / long_tokens
            added_s = work.row_s + work.prompt_rows_s / work.output_tokens
            if added_s <= 0:
                continue
            bound = int(max(work.step_s, pace_s - work.step_s) / added_s)
            if bound < work.batch and (least is None or bound < least):
                least = bound
        return least
