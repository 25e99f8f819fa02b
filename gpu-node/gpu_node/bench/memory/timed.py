"""Decisions of a scheduler with a stop-watch around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.admission import KvAdmission
from gpu_node.engine.steps.admission.decisions import Decisions, decisions
from gpu_node.engine.steps.admission.preemption import KvFate, PreemptionPolicy
from gpu_node.engine.steps.admission.set_choice import FreeRoom, SetChoice
from gpu_node.engine.steps.batch.order import RequestOrder
from gpu_node.engine.steps.batch.roster import Roster
from shared.config.engines.engine import EngineOptions


class Stopwatch:
    """What decisions have taken so far."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def since(self, started_s: float) -> None:
        """One is over that began then. Of the processor's time: others may have it meanwhile."""
        self.total_s += time.thread_time() - started_s


class _TimedPreemption:
    def __init__(self, policy: PreemptionPolicy, watch: Stopwatch) -> None:
        self._policy = policy
        self._watch = watch

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        started_s = time.thread_time()
        found = self._policy.victim(running, now)
        self._watch.since(started_s)
        return found

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        started_s = time.thread_time()
        found = self._policy.fate(request, blocks)
        self._watch.since(started_s)
        return found

    def note_return(self, num_blocks: int, num_cached_blocks: int) -> None:
        self._policy.note_return(num_blocks, num_cached_blocks)


class _TimedChoice(SetChoice):
    def __init__(self, order: RequestOrder, watch: Stopwatch) -> None:
        super().__init__(order)
        self._watch = watch

    def choose(
        self, roster: Roster, room: FreeRoom, num_blocks: Callable[[EngineRequest], int], now: float
    ) -> list[EngineRequest]:
        started_s = time.thread_time()
        found = super().choose(roster, room, num_blocks, now)
        self._watch.since(started_s)
        return found


def _time_admission(admission: KvAdmission, watch: Stopwatch) -> KvAdmission:
    """The same rule, whose answers are timed."""
    ask = admission.num_blocked_steps

    def timed(candidate: EngineRequest, running: Collection[EngineRequest]) -> int:
        started_s = time.thread_time()
        found = ask(candidate, running)
        watch.since(started_s)
        return found

    vars(admission)["num_blocked_steps"] = timed
    return admission


class TimedDecisions:
    """Makes the decisions that the configuration names, with one stop-watch."""

    def __init__(self) -> None:
        self.watch = Stopwatch()

    def __call__(self, model: LoadedModel, blocks: BlockManager, options: EngineOptions, costs: KvCosts) -> Decisions:
        """As `gpu_node.engine.steps.admission.decisions.decisions`."""
        made = decisions(model, blocks, options, costs)
        return Decisions(
            order=made.order,
            preemption=_TimedPreemption(made.preemption, self.watch),
            admission=_time_admission(made.admission, self.watch),
            choice=_TimedChoice(made.order, self.watch),
        )
