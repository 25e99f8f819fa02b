"""What OPT and GPT-2 share: learned positions, layer norms, biases everywhere, a plain feed-forward network."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind, Program, Rows
from gpu_node.models.architectures.layers.attention import attention
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.layers.feed_forward import plain
from gpu_node.models.config import ModelConfig


def build_learned(config: ModelConfig, activation: OperatorKind) -> Program:
    """A program of the GPT-2 kind, with the activation of its feed-forward networks."""
    build = ProgramBuilder(config)
    build.embedding()
    build.learned_positions()
    for layer in range(config.num_layers):
        build.layer_norm("hidden", "normed", f"layers.{layer}.attention_norm")
        attention(build, layer, bias=True, output_bias=True)
        build.layer_norm("hidden", "normed", f"layers.{layer}.mlp_norm")
        plain(build, layer, activation)
    # only rows that draw a token go through the head, by far the largest product for a long prompt
    build.add(OperatorKind.SELECT_DRAWS, ("hidden",), "drawn", rows=Rows.DRAWS)
    build.layer_norm("drawn", "drawn_normed", "norm")
    build.lm_head()
    return build.program()
