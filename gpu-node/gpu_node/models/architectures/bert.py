"""BERT (Devlin et al., NAACL'19) and RoBERTa (Liu et al., 2019): each token sees all tokens of its text, and norms come
behind each half of a layer. Nomic's (Nussbaum et al., 2024) and GTE's (Zhang et al., EMNLP'24) have rotary positions
and gated feed-forward networks: Nomic's by SiLU and without biases but those of norms, GTE's by GELU.
"""

from __future__ import annotations

from gpu_node.graph.program import TOKEN_IDS, OperatorKind
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.layers.rotary import turning_angles
from gpu_node.models.config import Family

NO_SEPARATOR = -1


def bert_layers(build: ProgramBuilder, separator: int) -> str:
    """All of the model up to its heads; the buffer of its states, [tokens, hidden size]."""
    config = build.config
    build.embedding()
    if config.num_segments:
        _segments(build, separator)
    if config.rope is None:
        build.learned_positions()
    else:
        turning_angles(build)
    build.layer_norm("hidden", "normed", "embedding_norm")
    for layer in range(config.num_layers):
        _attention(build, layer)
        (_feed_forward if config.rope is None else _gated_feed_forward)(build, layer)
    return "normed"


def _segments(build: ProgramBuilder, separator: int) -> None:
    config = build.config
    segments = Weight("segment_embedding", (config.num_segments, config.hidden_size))
    if separator == NO_SEPARATOR:
        segments = segments.cut(0, 0, 1)
    kind, columns = OperatorKind.SEGMENT_EMBEDDING, config.hidden_size
    build.add(kind, (TOKEN_IDS,), "segment", [segments], columns=columns, separator=separator)
    build.add(OperatorKind.ADD, ("hidden", "segment"), "hidden")


def _attention(build: ProgramBuilder, layer: int) -> None:
    config, prefix, bias = build.config, f"layers.{layer}.", _has_biases(build)
    for name in ("q", "k", "v"):
        build.linear("normed", name, prefix + name, config.q_size, bias=bias)
    for name in () if config.rope is None else ("q", "k"):
        build.add(OperatorKind.ROPE, (name, "angles"), name)
    build.add(OperatorKind.WRITE_KV, ("k", "v"), layer=layer)
    build.add(OperatorKind.BIDIRECTIONAL_ATTENTION, ("q",), "attended", layer=layer, head_dim=config.head_dim)
    build.linear("attended", "branch", prefix + "o", config.hidden_size, bias=bias)
    build.add(OperatorKind.ADD, ("normed", "branch"), "hidden")
    build.layer_norm("hidden", "normed", prefix + "attention_norm")


def _feed_forward(build: ProgramBuilder, layer: int) -> None:
    build.linear("normed", "up", f"layers.{layer}.up", build.config.intermediate_size, bias=True)
    build.add(OperatorKind.ERF_GELU, ("up",), "activated")
    _project_down(build, layer)


def _gated_feed_forward(build: ProgramBuilder, layer: int) -> None:
    """Neither half of what gates and what is gated has a bias."""
    config = build.config
    for name in ("gate", "up"):
        build.linear("normed", name, f"layers.{layer}.{name}", config.intermediate_size)
    is_nomic = config.family is Family.NOMIC_BERT
    build.add(OperatorKind.SILU_MUL if is_nomic else OperatorKind.ERF_GELU_MUL, ("gate", "up"), "activated")
    _project_down(build, layer)


def _project_down(build: ProgramBuilder, layer: int) -> None:
    prefix = f"layers.{layer}."
    build.linear("activated", "branch", prefix + "down", build.config.hidden_size, bias=_has_biases(build))
    build.add(OperatorKind.ADD, ("normed", "branch"), "hidden")
    build.layer_norm("hidden", "normed", prefix + "mlp_norm")


def _has_biases(build: ProgramBuilder) -> bool:
    return build.config.family is not Family.NOMIC_BERT
