"""Which steps an engine gave its executor, and when: an executor around another that writes it down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpu_node.engine.border.executor import Executor, PendingStep
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.predicted.passing import PassingExecutor
from gpu_node.graph.step_shape import SequencePart, StepShape


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step; times are those of `time.perf_counter`."""

    sequences: tuple[ScheduledSequence, ...]
    submitted_s: float
    done_s: float
    """When the host had its result."""
    duration_s: float
    """That it took on the device, as the executor measured it."""

    @property
    def is_decode(self) -> bool:
        """Every row is the newest token of a sequence."""
        return all(len(part.token_ids) == 1 and part.draws for part in self.sequences)

    @property
    def shape(self) -> StepShape:
        """Its size, as far as its cost depends on it."""
        parts = tuple(SequencePart(part.start, len(part.token_ids)) for part in self.sequences)
        return StepShape(parts, num_draws=sum(len(part.draws) for part in self.sequences))


class LoggingExecutor(PassingExecutor):
    """Passes everything on. What it writes down is put into shape later: it must not cost the time that it measures."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.steps: list[LoggedStep] = []
        """Of all that were asked for their result, in their order."""
        self.num_rows = 0
        """Rows submitted so far."""

    def submit(self, plan: StepPlan) -> PendingStep:
        """Queue a step there."""
        submitted_s = time.perf_counter()
        self.num_rows += plan.num_tokens
        return _LoggedPending(self._executor.submit(plan), plan.sequences, submitted_s, self.steps)


@dataclass(frozen=True, slots=True)
class _LoggedPending:
    pending: PendingStep
    sequences: tuple[ScheduledSequence, ...]
    submitted_s: float
    steps: list[LoggedStep]

    def result(self) -> StepResult:
        result = self.pending.result()
        self.steps.append(LoggedStep(self.sequences, self.submitted_s, time.perf_counter(), result.duration_s))
        return result


def device_idle_s(steps: Sequence[LoggedStep]) -> float:
    """How long the device had nothing to do between its first step and its last: from a step's result to the next one.

    Where steps are queued ahead there is no such time; one that a step spent done but unnoticed is not seen.
    """
    return sum(max(0.0, after.submitted_s - before.done_s) for before, after in pairwise(steps))


def decode_steps(steps: Sequence[LoggedStep]) -> list[tuple[LoggedStep, float]]:
    """Decode steps behind another step, with the seconds from that one's result to their own: the gap counts in."""
    return [(after, after.done_s - before.done_s) for before, after in pairwise(steps) if after.is_decode]
