"""The conversation with the scheduler: when to ask for a plan, what to tell it, which answers to take."""

from __future__ import annotations

import heapq

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import State
from shared import streams
from shared.core import Effect, Send
from shared.messages import Plan, PlanRequest

PLAN_INTERVAL_S = 0.05  # plans are asked for at most this often
PLAN_TIMEOUT_S = 5.0  # an unanswered request for a plan is sent again
MAX_PLANNED_GROUPS = 256  # bounds the scheduler's work; the groups due first are planned first


class Planning:
    """Owns `State.plan`. One question is open at a time; what changes meanwhile is asked afterwards."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    @property
    def wake_at(self) -> float | None:
        """When there is something to ask, or to ask again; None while there is not."""
        plan = self._state.plan
        if plan.asked_at_s is not None:
            return plan.asked_at_s + PLAN_TIMEOUT_S
        return plan.last_asked_s + PLAN_INTERVAL_S if self._has_question() else None

    def note_change(self) -> None:
        """Something happened that may call for another order."""
        self._state.plan.version += 1

    def ask(self, now: float) -> list[Effect]:
        """Send a question if one is due."""
        plan = self._state.plan
        wake_at = self.wake_at
        if wake_at is None or now < wake_at:
            return []
        plan.asked_at_s = None
        if not (self._state.nodes and self._state.groups):
            return []
        plan.asked_at_s = plan.last_asked_s = now
        plan.asked_version = plan.version
        first = heapq.nsmallest(MAX_PLANNED_GROUPS, self._state.groups.values(), key=lambda group: group.start_by_s)
        loads = sorted((self._groups.load(group, now) for group in first), key=lambda load: load.deadline_s)
        return [Send(streams.SCHEDULER, PlanRequest(version=plan.version, groups=loads))]

    def accept(self, message: Plan) -> bool:
        """Whether to apply this plan: any that is newer than the last one applied, since applying repairs it."""
        plan = self._state.plan
        if message.version <= plan.applied_version:
            return False
        plan.applied_version = message.version
        if message.version == plan.asked_version:
            plan.asked_at_s = None
        return True

    def _has_question(self) -> bool:
        plan = self._state.plan
        return bool(self._state.nodes and self._state.groups) and plan.version != plan.asked_version
