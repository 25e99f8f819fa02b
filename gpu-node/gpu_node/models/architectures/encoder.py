"""BERT (Devlin et al., NAACL'19) and RoBERTa (Liu et al., 2019): each token sees all tokens of its text, and norms come
behind each half of a layer. Nomic's (Nussbaum et al., 2024) have rotary positions and gated feed-forward networks, and
no biases but those of norms.

Keys and values go through blocks as those of other families do: a text has its own for one step. What a text's rows
become is read once, from its rows together: their mean or the first of them, or what a classifier's head makes of the
first.
"""

from __future__ import annotations

from enum import StrEnum

from gpu_node.graph.program import TOKEN_IDS, OperatorKind, Program, Rows
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.layers.rotary import turning_angles
from gpu_node.models.config import ModelConfig

NO_SEPARATOR = -1


class Pooling(StrEnum):
    """How a text's rows become one; the names are those of sentence-transformers."""

    MEAN = "mean"
    """Of all tokens, those that the tokenizer puts around a text included."""
    CLS = "cls"
    """The first token's."""


def build_encoder(config: ModelConfig, pooling: Pooling = Pooling.MEAN) -> Program:
    """The program of an encoder that embeds: its result is ``pooled``, [draws, hidden size]."""
    build = ProgramBuilder(config)
    _layers(build, NO_SEPARATOR)
    kind = OperatorKind.MEAN_POOL if pooling is Pooling.MEAN else OperatorKind.SELECT_FIRST
    build.add(kind, ("normed",), "pooled", rows=Rows.DRAWS)
    return build.program("pooled")


def build_classifier(config: ModelConfig, num_labels: int, separator: int = NO_SEPARATOR) -> Program:
    """The program of an encoder that scores pairs of texts by a head with one label, or classifies texts by one with
    several: its result is ``logits``, [draws, labels].

    ``separator``: the token that ends the first text; `NO_SEPARATOR` where texts are not told apart by segments.
    """
    build = ProgramBuilder(config)
    _layers(build, separator)
    build.add(OperatorKind.SELECT_FIRST, ("normed",), "first", rows=Rows.DRAWS)
    build.linear("first", "pooler", "pooler", config.hidden_size, bias=True)
    build.add(OperatorKind.TANH, ("pooler",), "pooled")
    build.linear("pooled", "logits", "score", num_labels)
    build.add(OperatorKind.ADD_BIAS, ("logits",), "logits", [Weight("score_bias", (num_labels,))])
    return build.program()


def _layers(build: ProgramBuilder, separator: int) -> None:
    """``normed`` behind the last layer."""
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


def _segments(build: ProgramBuilder, separator: int) -> None:
    config = build.config
    segments = Weight("segment_embedding", (config.num_segments, config.hidden_size))
    if separator == NO_SEPARATOR:
        segments = segments.cut(0, 0, 1)
    kind, columns = OperatorKind.SEGMENT_EMBEDDING, config.hidden_size
    build.add(kind, (TOKEN_IDS,), "segment", [segments], columns=columns, separator=separator)
    build.add(OperatorKind.ADD, ("hidden", "segment"), "hidden")


def _attention(build: ProgramBuilder, layer: int) -> None:
    config, prefix = build.config, f"layers.{layer}."
    is_turned = config.rope is not None  # and nothing has a bias then
    for name in ("q", "k", "v"):
        build.linear("normed", name, prefix + name, config.q_size, bias=not is_turned)
    for name in ("q", "k") if is_turned else ():
        build.add(OperatorKind.ROPE, (name, "angles"), name)
    build.add(OperatorKind.WRITE_KV, ("k", "v"), layer=layer)
    build.add(OperatorKind.BIDIRECTIONAL_ATTENTION, ("q",), "attended", layer=layer, head_dim=config.head_dim)
    build.linear("attended", "branch", prefix + "o", config.hidden_size, bias=not is_turned)
    build.add(OperatorKind.ADD, ("normed", "branch"), "hidden")
    build.layer_norm("hidden", "normed", prefix + "attention_norm")


def _feed_forward(build: ProgramBuilder, layer: int) -> None:
    config, prefix = build.config, f"layers.{layer}."
    build.linear("normed", "up", prefix + "up", config.intermediate_size, bias=True)
    build.add(OperatorKind.ERF_GELU, ("up",), "activated")
    build.linear("activated", "branch", prefix + "down", config.hidden_size, bias=True)
    build.add(OperatorKind.ADD, ("normed", "branch"), "hidden")
    build.layer_norm("hidden", "normed", prefix + "mlp_norm")


def _gated_feed_forward(build: ProgramBuilder, layer: int) -> None:
    config, prefix = build.config, f"layers.{layer}."
    for name in ("gate", "up"):
        build.linear("normed", name, prefix + name, config.intermediate_size)
    build.add(OperatorKind.SILU_MUL, ("gate", "up"), "activated")
    build.linear("activated", "branch", prefix + "down", config.hidden_size)
    build.add(OperatorKind.ADD, ("normed", "branch"), "hidden")
    build.layer_norm("hidden", "normed", prefix + "mlp_norm")
