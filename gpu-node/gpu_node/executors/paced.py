"""Predictions in real time: what an executor without a device predicts takes as long here as it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import StepPlan, StepResult
from gpu_node.executors.executor import Executor
from shared.config_engine import ModelSpec


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


class PacedExecutor:
    """Steps queue up behind one another as on a device; the host is free to plan the next while one takes its time."""

    def __init__(self, executor: Predicted, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._due_s: float | None = None  # when the last step that was submitted is over

    @property
    def device(self) -> str:
        """That of the predictions."""
        return self._executor.device

    @property
    def tiers(self) -> dict[str, str]:
        """Where weights would be."""
        return self._executor.tiers

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Raises as the executor does, at once; a model that can be loaded takes its time."""
        ready_s = self._clock.now() + self._executor.load_s(spec)
        model = self._executor.load_model(spec, instead_of)
        self._clock.sleep_until(ready_s)
        return model

    def unload_model(self, name: str) -> None:
        """Takes no time."""
        self._executor.unload_model(name)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """The device moves them ahead of its next step."""
        return self._executor.read_blocks(model, blocks, swapped_out=swapped_out)

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """The device moves them ahead of its next step."""
        return self._executor.write_blocks(model, blocks, content)

    def submit(self, plan: StepPlan) -> PacedStep:
        """Begins now, or when the step before is over."""
        computed = self._executor.submit(plan).result()
        now = self._clock.now()
        before_s = now if self._due_s is None else self._due_s
        begins_s = max(now, before_s)
        self._due_s = begins_s + computed.moves_s + computed.duration_s
        return PacedStep(replace(computed, idle_s=begins_s - before_s), self._due_s, self._clock)
