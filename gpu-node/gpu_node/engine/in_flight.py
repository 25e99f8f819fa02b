"""Steps in the executor's queue, as their engine keeps them, and what becomes of their results."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from gpu_node.engine.border.executor import Executor, LateMasks, PendingStep
from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.measures.device_time import DeviceTime
from gpu_node.engine.measures.step_log import StepLog
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.residents import Resident
from gpu_node.engine.tiers.block_store import BlockStore


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """Of one model."""

    resident: Resident
    plan: StepPlan
    pending: PendingStep
    follows: bool
    """There has been work since the step before it."""

    @property
    def is_constrained(self) -> bool:
        """What is drawn in it says what may be drawn next."""
        return any(draw.allowed or draw.is_mask_late for part in self.plan.sequences for draw in part.draws)

    @property
    def has_late_masks(self) -> bool:
        """What some of its draws may give is to be said yet."""
        return any(draw.is_mask_late for part in self.plan.sequences for draw in part.draws)

    @property
    def has_draft_tokens(self) -> bool:
        """Where its sequences go on hangs on what is drawn in it."""
        return any(part.num_draft_tokens for part in self.plan.sequences)


class StepsInFlight:
    """The oldest first, of whatever models."""

    def __init__(self, executor: Executor, step_log: StepLog | None, store: BlockStore | None) -> None:
        self._executor = executor
        self._late_masks = executor if isinstance(executor, LateMasks) else None
        self._step_log = step_log
        self._store = store
        self._steps: deque[StepInFlight] = deque()
        self._early: list[OutputChunk] = []
        self.step_s = 0.0
        """Duration of the last one."""
        self.num_collected = 0
        self.device_time = DeviceTime()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def has_any(self) -> bool:
        """Steps, or what they have brought that is not told yet."""
        return bool(self._steps or self._early)

    def submit(self, resident: Resident, plan: StepPlan, *, follows: bool) -> None:
        """Queue the step of a plan."""
        named = replace(plan, model=resident.model.name, restores=())
        self._steps.append(StepInFlight(resident, plan, self._executor.submit(named), follows))

    @property
    def decides_next(self) -> bool:
        """Whether what comes next hangs on the newest's result for more than a token that the device puts in itself."""
        step = self._steps[-1]
        return step.has_draft_tokens or (self._late_masks is None and step.is_constrained)

    def settle(self) -> None:
        """Wait for all; what they bring is told with the next that is collected."""
        self._early = self.collect_all()

    def take_early(self) -> list[OutputChunk]:
        """What was waited for before it was asked for."""
        chunks, self._early = self._early, []
        return chunks

    def collect_all(self) -> list[OutputChunk]:
        """Wait for all and take in what they computed."""
        chunks = self.take_early()
        while self._steps:
            chunks += self.collect()
        return chunks

    def collect(self) -> list[OutputChunk]:
        """Wait for the oldest and take in what it computed."""
        step = self._steps.popleft()
        self.num_collected += 1
        result = step.pending.result()
        self.device_time.observe(result, follows=step.follows)
        self.step_s = result.moves_s + result.duration_s
        own = replace(result, duration_s=result.duration_s - result.served_s)  # others' is no cost of this step
        step.resident.costs.observe(step.plan, own, result.idle_s if step.follows else 0.0)
        if self._step_log is not None:
            self._step_log.write(step.resident.model.name, step.plan, result, follows=step.follows)
        chunks = step.resident.scheduler.commit(step.plan, result)
        self._give_masks()
        if self._store is not None:
            self._store.write_copies(step.resident.model)
        return chunks

    def _give_masks(self) -> None:
        """All tokens before the draws of the oldest step are known now."""
        if self._late_masks is None or not self._steps:
            return
        step = self._steps[0]
        if step.has_late_masks:
            self._late_masks.give_masks(step.pending, step.resident.scheduler.late_masks(step.plan))
