"""Qwen2 and Qwen2.5: Llama with biases of queries, keys and values; some layers may have a sliding window."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.layers.rotary import build_rotary
from gpu_node.models.config import ModelConfig


def build_qwen2(config: ModelConfig) -> Program:
    """The program of a Qwen2 model."""
    return build_rotary(config, bias=True)
