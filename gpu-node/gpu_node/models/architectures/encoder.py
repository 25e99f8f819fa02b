"""Encoders: models whose tokens see all tokens of their text, and what is made of a text's rows.

Keys and values go through blocks as those of other families do: a text has its own for one step. What a text's rows
become is read once, from its rows together: their mean or the first of them, or what a classifier's head makes of that.
"""

from __future__ import annotations

from enum import StrEnum

from gpu_node.graph.program import OperatorKind, Program, Rows
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.bert import NO_SEPARATOR, bert_layers
from gpu_node.models.architectures.layers.builder import ProgramBuilder
from gpu_node.models.architectures.modern_bert import modern_bert_layers
from gpu_node.models.config import Family, ModelConfig


class Pooling(StrEnum):
    """How a text's rows become one; the names are those of sentence-transformers."""

    MEAN = "mean"
    """Of all tokens, those that the tokenizer puts around a text included."""
    CLS = "cls"
    """The first token's."""


_POOLS = {Pooling.MEAN: OperatorKind.MEAN_POOL, Pooling.CLS: OperatorKind.SELECT_FIRST}


def build_encoder(config: ModelConfig, pooling: Pooling = Pooling.MEAN) -> Program:
    """The program of an encoder that embeds: its result is ``pooled``, [draws, hidden size]."""
    build = ProgramBuilder(config)
    states = _layers(build, NO_SEPARATOR)
    build.add(_POOLS[pooling], (states,), "pooled", rows=Rows.DRAWS)
    return build.program("pooled")


def build_classifier(
    config: ModelConfig, num_labels: int, separator: int = NO_SEPARATOR, pooling: Pooling = Pooling.CLS
) -> Program:
    """The program of an encoder that scores pairs of texts by a head with one label, or classifies texts by one with
    several: its result is ``logits``, [draws, labels].

    ``separator``: the token that ends the first text; `NO_SEPARATOR` where texts are not told apart by segments.
    ``pooling``: what the head reads.
    """
    build = ProgramBuilder(config)
    states = _layers(build, separator)
    text = "first" if pooling is Pooling.CLS else "mean"
    build.add(_POOLS[pooling], (states,), text, rows=Rows.DRAWS)
    if config.family is Family.MODERN_BERT:
        build.linear(text, "pooler", "pooler", config.hidden_size)
        build.add(OperatorKind.ERF_GELU, ("pooler",), "activated_pooler")
        build.layer_norm("activated_pooler", "pooled", "pooler_norm", bias=False)
    else:
        build.linear(text, "pooler", "pooler", config.hidden_size, bias=True)
        build.add(OperatorKind.TANH, ("pooler",), "pooled")
    build.linear("pooled", "logits", "score", num_labels)
    build.add(OperatorKind.ADD_BIAS, ("logits",), "logits", [Weight("score_bias", (num_labels,))])
    return build.program()


def _layers(build: ProgramBuilder, separator: int) -> str:
    return modern_bert_layers(build) if build.config.family is Family.MODERN_BERT else bert_layers(build, separator)
