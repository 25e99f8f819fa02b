"""Models that cost differently on one predicted device: an executor for each, and one host tier for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_node.engine.border.executor import ComputedStep, model_of
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec


@dataclass(frozen=True, slots=True)
class _Model:
    """A loaded model."""

    spec: ModelSpec
    executor: PredictedExecutor


class PredictedModels:
    """``make`` gives a model's executor, or raises what `Executor.load_model` may raise."""

    device = "predicted"

    def __init__(self, make: Callable[[ModelSpec], PredictedExecutor], options: EngineOptions) -> None:
        self._make = make
        self._models: dict[str, _Model] = {}
        self._left: HostTier[None] = HostTier(options.host_models, lambda _: None)

    @property
    def tiers(self) -> dict[str, str]:
        """Where weights would be."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """As `Executor.load_model`."""
        executor = self._make(spec)
        model = executor.load_model(spec)
        self._left.take(spec)
        if instead_of is not None and instead_of != spec.name:
            self.unload_model(instead_of)
        self._models[spec.name] = _Model(spec, executor)
        return model

    def unload_model(self, name: str) -> None:
        """It is known to be in host memory, as long as it would be."""
        self._left.put(self._models.pop(name).spec, None)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """No content, but the time that it would take."""
        return self._models[model].executor.read_blocks(model, blocks, swapped_out=swapped_out)

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """No content, but the time that it would take."""
        return self._models[model].executor.write_blocks(model, blocks, content)

    def submit(self, plan: StepPlan) -> ComputedStep:
        """As the executor of the plan's model predicts it."""
        return model_of(plan.model, self._models).executor.submit(plan)
