"""Executors that compute as ever and say that each step takes a second: what hangs on time is the same in each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_node.engine.border.executor import PendingStep
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.cpu.step import RunningStep
from gpu_node.executors.group.part import RankSpec
from gpu_node.executors.group.tensor_parallel import TensorParallelExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions

STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class SteadyStep:
    """A step of an executor, but for its times."""

    inner: PendingStep

    def result(self) -> StepResult:
        return replace(self.inner.result(), duration_s=STEP_S, idle_s=0.0)


class SteadyReference(ReferenceExecutor):
    def submit(self, plan: StepPlan) -> SteadyStep:  # type: ignore[override]
        return SteadyStep(super().submit(plan))


class SteadyCpu(CpuExecutor):
    def submit(self, plan: StepPlan) -> SteadyStep:  # type: ignore[override]
        return SteadyStep(super().submit(plan))

    def give_masks(self, step: SteadyStep, masks: Mapping[int, bytes]) -> None:  # type: ignore[override]
        assert isinstance(step.inner, RunningStep)
        super().give_masks(step.inner, masks)


class SteadyGroup(TensorParallelExecutor):
    """Two processes."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options, [RankSpec(num_threads=1)] * 2)

    def submit(self, plan: StepPlan) -> SteadyStep:
        return SteadyStep(super().submit(plan))
