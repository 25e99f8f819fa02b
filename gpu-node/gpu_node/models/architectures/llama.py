"""Llama 2 and 3: pre-norm transformer, rotary embeddings, grouped-query attention, gated SiLU feed-forward.

Llama 3 differs by numbers only: more tokens, a larger theta, and rotary embeddings slowed down for long texts.
"""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.layers.rotary import build_rotary
from gpu_node.models.config import ModelConfig


def build_llama(config: ModelConfig) -> Program:
    """The program of a Llama model."""
    return build_rotary(config)
