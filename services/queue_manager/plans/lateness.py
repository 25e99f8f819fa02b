"""Groups predicted to start too late, and whether that was so when the last plan was applied.

A plan leaves those late which no order would have helped. Which they are is seen when their node is looked at next: to
walk all queues when a plan is applied would hold up all requests for as long as that takes.
"""

from __future__ import annotations

from typing import NamedTuple

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.predictions import Predictions
from shared.estimator.estimator import NEVER, GroupForecast

SOON_S = 1.0  # no plan brings a start much nearer than this


class QueueLateness(NamedTuple):
    """What was seen at a node."""

    is_late: bool
    """A group is."""
    is_news: bool
    """And none was when the last plan was applied."""


class Lateness:
    """Owns `late`, `unseen` and `num_groups` of `State.plan`."""

    def __init__(self, state: State, predictions: Predictions) -> None:
        self._state = state
        self._predictions = predictions

    def begin_anew(self) -> None:
        """A plan has been applied."""
        plan = self._state.plan
        plan.late.clear()
        plan.unseen = dict.fromkeys(self._state.nodes)
        plan.num_groups = self._state.next_group

    def forget(self, gid: str) -> None:
        """The group has ended."""
        self._state.plan.late.pop(gid, None)

    def look(self, node: Node, now: float) -> QueueLateness:
        """At a node that has changed. A group late there at the first look behind a plan was late already."""
        plan = self._state.plan
        late = self._late(node, now)
        known = set(plan.late)
        if node.node in plan.unseen:
            known.update(gid for gid in late if self._was_there(gid))
        plan.unseen.pop(node.node, None)
        plan.late.update(dict.fromkeys(late))
        return QueueLateness(is_late=bool(late), is_news=bool(late) and known.isdisjoint(late))

    def _was_there(self, gid: str) -> bool:
        """Whether there was the group when the last plan was applied: names count them."""
        return int(gid[1:]) < self._state.plan.num_groups

    def _late(self, node: Node, now: float) -> list[str]:
        """Groups of which the first or the last waiting member is predicted to start after it has to.

        Where an end was promised, it has to start early enough for that. A broken model keeps no group waiting.
        """
        late: list[str] = []
        for gid, one in self._predictions.of_node(node, now).items():
            group = self._state.groups[gid]
            slack_s = self._slack_s(group, one)
            first_s, last_s = now + one.start.mean_s, now + one.last_start.mean_s
            if one.begin != NEVER and (first_s > group.start_by_s + slack_s or last_s > group.last_due_s + slack_s):
                late.append(gid)
        return late

    def _slack_s(self, group: Group, one: GroupForecast) -> float:
        """By how much the promised end leaves less time than the promised start; at most 0.0 s.

        Whose answer takes too long though it starts soon cannot be helped by another order.
        """
        slo = self._state.requests[next(iter(group.waiting))].slo
        if slo.deadline_s is None or one.last_start.mean_s < SOON_S:
            return 0.0
        answer_s = (one.work.output_tokens - 1) * one.work.token_at(one.work.batch)
        return min(0.0, slo.deadline_s - slo.start_by_s(0.0) - answer_s)
