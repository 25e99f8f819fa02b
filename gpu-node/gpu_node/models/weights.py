"""The weights of a model, from either kind of file, as float32 tensors in memory of our own."""

from __future__ import annotations

import torch

from gpu_node.graph.program import Program
from gpu_node.models import gguf_weights, safetensors_weights
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.rotary import ROPE_FACTORS


def load_weights(checkpoint: Checkpoint, program: Program) -> dict[str, torch.Tensor]:
    """All weights of ``program`` by their canonical names.

    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable.
    """
    path, config = checkpoint.path, checkpoint.config
    if checkpoint.gguf is None:
        weights = safetensors_weights.load_weights(path, config, program)
    else:
        weights = gguf_weights.load_weights(checkpoint.gguf, path, config, program)
    if config.rope is not None and config.rope.factors:
        weights[ROPE_FACTORS] = torch.tensor(config.rope.factors, dtype=torch.float32)
    return weights
