"""What an engine refuses of encoders that other models may have, before their weights are read."""

from __future__ import annotations

from gpu_node.models.checkpoint import Checkpoint
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.encoder import encoder_problem
from shared.files.model_file import ModelFileError


def check_encoder(spec: ModelSpec, checkpoint: Checkpoint, options: EngineOptions, num_devices: int = 1) -> None:
    """`ModelFileError` for an encoder that cannot be served so, on a node of ``num_devices``; others pass."""
    if not checkpoint.config.is_encoder:
        return
    problem = encoder_problem(spec, options)
    if not problem and num_devices > 1:
        problem = (
            f"model {spec.name!r}: it is an encoder, which is not divided among devices, and the node has "
            f"{num_devices}; serve it on a node with one"
        )
    if problem:
        raise ModelFileError(f"{checkpoint.path}: {problem}")
