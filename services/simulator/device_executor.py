"""A simulated device behind the live engine's border: each model is predicted by what it costs on that device."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import StepPlan
from gpu_node.executors.executor import ComputedStep
from gpu_node.executors.host_tier import HostTier
from gpu_node.executors.predicted import AnswerTokens, PredictedExecutor
from services.simulator.device import VOCAB_SIZE, Device
from shared.config import EngineOptions, ModelSpec


class DeviceExecutor:
    """One executor a model, and the tiers of all."""

    device = "predicted"

    def __init__(self, device: Device, options: EngineOptions, answer_tokens: AnswerTokens | None) -> None:
        self._device = device
        self._left: HostTier[None] = HostTier(options.host_models, lambda _: None)
        self._loaded: dict[str, ModelSpec] = {}
        self._executors = {
            name: PredictedExecutor(
                model.cost,
                options.model_copy(update={"kv_cache_bytes": model.kv_cache_bytes}),
                model.kv_token_bytes,
                VOCAB_SIZE,
                device.kv_bytes_per_s,
                answer_tokens,
            )
            for name, model in device.models.items()
        }

    @property
    def tiers(self) -> dict[str, str]:
        """Where weights would be."""
        return self._left.tiers(self._loaded)

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """As `Executor.load_model`."""
        self._device.model(spec.name)
        model = self._executors[spec.name].load_model(spec)
        self._left.take(spec)
        self._loaded[spec.name] = spec
        return model

    def unload_model(self, name: str) -> None:
        """As `Executor.unload_model`."""
        self._executors[name].unload_model(name)
        self._left.put(self._loaded.pop(name), None)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """As `Executor.read_blocks`."""
        return self._executors[model].read_blocks(model, blocks, swapped_out=swapped_out)

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """As `Executor.write_blocks`."""
        return self._executors[model].write_blocks(model, blocks, content)

    def submit(self, plan: StepPlan) -> ComputedStep:
        """As `Executor.submit`."""
        return self._executors[plan.model].submit(plan)
