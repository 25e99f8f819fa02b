"""What a simulated device can do: how each model runs on it, and how fast content moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.sizing import cut
from gpu_node.executors.memory.host_tier import DEVICE, HOST
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.pipelines.step_pipeline import StepPipeline

VOCAB_SIZE = 1_000  # of every simulated model; ids mean nothing
NETWORK_BYTES_PER_S = 1.25e9  # 10 Gbit/s


@dataclass(frozen=True, slots=True)
class ModelOnDevice:
    """One model on one kind of device."""

    cost: StepCost
    kv_token_bytes: int
    """Keys and values of one token."""
    kv_cache_bytes: int
    """Device memory that is left for them beside the weights."""
    disk_load_s: float
    """Until its weights, which are on disk, are on the device."""
    host_load_s: float
    """Likewise from host memory."""
    pipeline: StepPipeline | None = None
    """That steps of its size take where it is shorter (`engine.pipeline: auto`); None: all are plain."""

    def predict_s(self, num_tokens: float, num_context_tokens: float, num_attended_tokens: float = 0.0) -> float:
        """Duration of a step, as `StepCost.predict_s`."""
        if self.pipeline is None:
            return self.cost.predict_s(num_tokens, num_context_tokens, num_attended_tokens)
        return self.pipeline.predict_s(self.cost, num_tokens, num_context_tokens, num_attended_tokens)

    def loaded(self, spec: ModelSpec, options: EngineOptions) -> LoadedModel:
        """The model as bookkeeping sees it; `ModelTooLargeError` where a request of full length has no room."""
        if self.kv_cache_bytes <= 0:
            raise ModelTooLargeError(f"model {spec.name!r}: its weights leave no memory for keys and values")
        return cut(
            spec.name,
            replace(options, kv_cache_bytes=self.kv_cache_bytes),
            token_bytes=self.kv_token_bytes,
            max_model_len=spec.max_model_len,
            vocab_size=VOCAB_SIZE,
            adapters=spec.adapters,
        )


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """A kind of device."""

    kind: str
    models: Mapping[str, ModelOnDevice]
    """By name; what is not here cannot run on it."""
    kv_bytes_per_s: float
    """Between device and host memory, one way."""
    network_bytes_per_s: float = NETWORK_BYTES_PER_S
    """From other nodes to its own."""

    def model(self, name: str) -> ModelOnDevice:
        """How a model runs on it; `ModelTooLargeError` where it cannot."""
        if name not in self.models:
            raise ModelTooLargeError(f"model {name!r} does not fit into the memory of {self.kind!r}")
        return self.models[name]

    def load_s(self, name: str, source: str) -> float:
        """How long it takes to load a model, or to find out that it cannot be."""
        if name not in self.models or source == DEVICE:
            return 0.0
        return self.models[name].host_load_s if source == HOST else self.models[name].disk_load_s
