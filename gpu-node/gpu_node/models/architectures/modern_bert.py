"""ModernBERT (Warner et al., 2024): norms come before each half of a layer, and nothing has a bias. Most layers attend
to a window on both sides of a token, with a rotary embedding of their own; others attend to all of a text.
"""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.layers.rotary import turning_angles, window_angles
from gpu_node.models.config import ModelConfig


def modern_bert_layers(build: ProgramBuilder) -> str:
    """All of the model up to its heads; the buffer of its states, [tokens, hidden size]."""
    config = build.config
    build.embedding()
    build.layer_norm("hidden", "hidden", "embedding_norm", bias=False)
    windowed = [_turns_otherwise(config, layer) for layer in range(config.num_layers)]
    if not all(windowed):
        turning_angles(build)
    if any(windowed):
        window_angles(build)
    for layer in range(config.num_layers):
        _attention(build, layer, "window_angles" if windowed[layer] else "angles")
        _feed_forward(build, layer)
    build.layer_norm("hidden", "states", "norm", bias=False)
    return "states"


def _turns_otherwise(config: ModelConfig, layer: int) -> bool:
    return config.window_rope is not None and config.window(layer) is not None


def _attention(build: ProgramBuilder, layer: int, angles: str) -> None:
    """The norm before that of the first layer is the embedding's."""
    config, prefix, source = build.config, f"layers.{layer}.", "hidden"
    if layer > 0:
        source = "normed"
        build.layer_norm("hidden", source, prefix + "attention_norm", bias=False)
    for name in ("q", "k", "v"):
        build.linear(source, name, prefix + name, config.q_size)
    for name in ("q", "k"):
        build.add(OperatorKind.ROPE, (name, angles), name)
    build.add(OperatorKind.WRITE_KV, ("k", "v"), layer=layer)
    window, head_dim = config.window(layer), config.head_dim
    if window is None:
        build.add(OperatorKind.BIDIRECTIONAL_ATTENTION, ("q",), "attended", layer=layer, head_dim=head_dim)
    else:
        kind = OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION
        build.add(kind, ("q",), "attended", layer=layer, head_dim=head_dim, window=window)
    build.linear("attended", "branch", prefix + "o", config.hidden_size)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")


def _feed_forward(build: ProgramBuilder, layer: int) -> None:
    config, prefix = build.config, f"layers.{layer}."
    build.layer_norm("hidden", "normed", prefix + "mlp_norm", bias=False)
    for name in ("gate", "up"):
        build.linear("normed", name, prefix + name, config.intermediate_size)
    build.add(OperatorKind.ERF_GELU_MUL, ("gate", "up"), "activated")
    build.linear("activated", "branch", prefix + "down", config.hidden_size)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")
