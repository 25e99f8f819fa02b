"""When an engine's steps were submitted and done: an executor around another that writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from gpu_node.engine.border.executor import Executor, PendingStep
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.executors.predicted.passing import PassingExecutor


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step; points in time are those of `time.perf_counter`."""

    num_sequences: int
    num_tokens: int
    submitted_s: float
    waited_s: float
    """How long the host waited for its result, with nothing else to do."""
    done_s: float
    duration_s: float
    """On the device."""
    idle_s: float
    """How long the device had nothing to do before it."""

    @property
    def is_decode(self) -> bool:
        """One row a sequence."""
        return self.num_tokens == self.num_sequences


class TimedExecutor(PassingExecutor):
    """Passes everything on. Of a step it keeps numbers alone: a plan with all its blocks would fill memory."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.steps: list[StepTime] = []
        """Of all that were asked for their result, in their order."""

    def submit(self, plan: StepPlan) -> PendingStep:
        """Queue a step there."""
        submitted_s = perf_counter()
        pending = self._executor.submit(plan)
        return _TimedStep(pending, len(plan.sequences), plan.num_tokens, submitted_s, self.steps)


@dataclass(frozen=True, slots=True)
class _TimedStep:
    pending: PendingStep
    num_sequences: int
    num_tokens: int
    submitted_s: float
    steps: list[StepTime]

    def result(self) -> StepResult:
        began_s = perf_counter()
        result = self.pending.result()
        done_s = perf_counter()
        self.steps.append(
            StepTime(
                self.num_sequences,
                self.num_tokens,
                self.submitted_s,
                done_s - began_s,
                done_s,
                result.duration_s,
                result.idle_s,
            )
        )
        return result
