"""A simulated device behind the live engine's border: each model is predicted by what it costs on that device."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.executors.predicted.executor import AnswerTokens, PredictedExecutor
from gpu_node.executors.predicted.models import PredictedModels
from services.simulator.devices.device import VOCAB_SIZE, SimulatedDevice
from shared.config.engines.engine import EngineOptions, ModelSpec


def device_executor(
    device: SimulatedDevice, options: EngineOptions, answer_tokens: AnswerTokens | None
) -> PredictedModels:
    """An executor of the models that the device can run."""

    def make(spec: ModelSpec) -> PredictedExecutor:
        model = device.models[spec.name]
        return PredictedExecutor(
            model,
            replace(options, kv_cache_bytes=model.kv_cache_bytes),
            model.kv_token_bytes,
            VOCAB_SIZE,
            device.kv_bytes_per_s,
            answer_tokens,
        )

    return PredictedModels(make, options)
