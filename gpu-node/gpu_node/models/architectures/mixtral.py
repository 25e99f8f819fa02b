"""Mixtral (Jiang et al., 2024): Llama whose feed-forward networks are mixtures of experts."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.layers.feed_forward import mixture_of_experts
from gpu_node.models.architectures.layers.rotary import build_rotary
from gpu_node.models.config import ModelConfig


def build_mixtral(config: ModelConfig) -> Program:
    """The program of a Mixtral model."""
    return build_rotary(config, feed_forward=mixture_of_experts)
