"""What Llama and its relatives share: pre-norm layers with RMS norms and rotary position embeddings."""

from __future__ import annotations

from collections.abc import Callable

from gpu_node.graph.program import POSITIONS, OperatorKind, Program, Rows
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.layers.attention import attention
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.layers.feed_forward import gated
from gpu_node.models.config import ModelConfig

ROPE_FACTORS = "rope_factors"
"""A weight that comes from the configuration, not from a tensor of the file: `Rope.factors`."""


def build_rotary(
    config: ModelConfig,
    *,
    bias: bool = False,
    head_norm: bool = False,
    feed_forward: Callable[[ProgramBuilder, int], None] = gated,
) -> Program:
    """A program of the Llama kind; the options are those of `attention`."""
    build = ProgramBuilder(config)
    build.embedding()
    turning_angles(build)
    for layer in range(config.num_layers):
        build.rms_norm("hidden", "normed", f"layers.{layer}.attention_norm")
        attention(build, layer, rotary=True, bias=bias, head_norm=head_norm)
        build.rms_norm("hidden", "normed", f"layers.{layer}.mlp_norm")
        feed_forward(build, layer)
    # only rows that draw a token go through the head, by far the largest product for a long prompt
    build.add(OperatorKind.SELECT_DRAWS, ("hidden",), "drawn", rows=Rows.DRAWS)
    build.rms_norm("drawn", "drawn_normed", "norm")
    build.lm_head()
    return build.program()


def turning_angles(build: ProgramBuilder) -> None:
    """Once a step, for all layers: cosines and sines by which queries and keys are turned."""
    rope, head_dim = build.config.rope, build.config.head_dim
    assert rope is not None
    if rope.factors:
        factors = Weight(ROPE_FACTORS, (head_dim // 2,))
        build.add(
            OperatorKind.SCALED_ROPE_ANGLES, (POSITIONS,), "angles", [factors], columns=head_dim, theta=rope.theta
        )
    else:
        _plain_angles(build, "angles", rope.theta)


def window_angles(build: ProgramBuilder) -> None:
    """The same for layers with a window, where theirs are others; they are not scaled."""
    rope = build.config.window_rope
    assert rope is not None
    assert not rope.factors, "one rotary embedding of a model has factors"
    _plain_angles(build, "window_angles", rope.theta)


def _plain_angles(build: ProgramBuilder, name: str, theta: float) -> None:
    head_dim = build.config.head_dim
    build.add(OperatorKind.ROPE_ANGLES, (POSITIONS,), name, columns=head_dim, head_dim=head_dim, theta=theta)
