"""Mistral (Jiang et al., 2023): Llama whose tokens attend to a sliding window of those before them."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.layers.rotary import build_rotary
from gpu_node.models.config import ModelConfig


def build_mistral(config: ModelConfig) -> Program:
    """The program of a Mistral model; later versions have no window and are Llama throughout."""
    return build_rotary(config)
