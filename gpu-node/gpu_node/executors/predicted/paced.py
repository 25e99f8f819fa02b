"""Predictions in real time: what an executor without a device predicts takes as long here as it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.executors.predicted.passing import PassingExecutor
from shared.config.engines.engine import ModelSpec


class Predicted(Executor, Protocol):
    """An executor that knows how long its device would take, and takes no time itself."""

    def load_s(self, spec: ModelSpec) -> float:
        """How long it takes to load this model, from where its weights are now."""
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that passes; tests have one of their own."""

    now: Callable[[], float]
    sleep: Callable[[float], None]

    def sleep_until(self, time_s: float) -> None:
        """Return at ``time_s``, at once if that has passed."""
        if (left_s := time_s - self.now()) > 0:
            self.sleep(left_s)


@dataclass(frozen=True, slots=True)
class PacedStep:
    """A step whose result is due at a time."""

    computed: StepResult
    due_s: float
    clock: Clock

    def result(self) -> StepResult:
        """What it gave, not before it is due."""
        self.clock.sleep_until(self.due_s)
        return self.computed


class PacedExecutor(PassingExecutor):
    """Steps queue up behind one another as on a device; the host is free to plan the next while one takes its time."""

    def __init__(self, executor: Predicted, clock: Clock) -> None:
        super().__init__(executor)
        self._predicted = executor
        self._clock = clock
        self._due_s: float | None = None  # when the last step that was submitted is over

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Raises as the executor does, at once; a model that can be loaded takes its time."""
        ready_s = self._clock.now() + self._predicted.load_s(spec)
        model = super().load_model(spec, instead_of)
        self._clock.sleep_until(ready_s)
        return model

    def submit(self, plan: StepPlan) -> PacedStep:
        """Begins now, or when the step before is over."""
        computed = self._predicted.submit(plan).result()
        now = self._clock.now()
        before_s = now if self._due_s is None else self._due_s
        begins_s = max(now, before_s)
        self._due_s = begins_s + computed.moves_s + computed.duration_s
        return PacedStep(replace(computed, idle_s=begins_s - before_s), self._due_s, self._clock)
