"""Qwen3: Llama with a norm for each head of queries and keys, and heads whose size is a number of its own."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.layers.rotary import build_rotary
from gpu_node.models.config import ModelConfig


def build_qwen3(config: ModelConfig) -> Program:
    """The program of a dense Qwen3 model."""
    return build_rotary(config, head_norm=True)
