"""A model file as `shared.config.hardware` describes the models of its catalogue."""

from __future__ import annotations

from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ENCODERS, TURNED_ENCODERS, Family, ModelConfig
from shared.config.hardware import FeedForward, ModelShape

_WITHOUT_GATE = (ENCODERS - TURNED_ENCODERS) | {Family.OPT, Family.GPT2}


def shape_of(name: str, config: ModelConfig, weight_bytes: float) -> ModelShape:
    """Sizes of a model whose parameters take ``weight_bytes`` each.

    All experts of a mixture are read, as if each of them had rows in every step.
    """
    table = config.vocab_size * config.hidden_size
    return ModelShape(
        name=name,
        num_parameters=sum(weight.num_numbers for weight in build_program(config).weights),
        num_embedding_parameters=0 if config.tied_embedding else table,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        context_tokens=config.context_length,
        hidden_size=config.hidden_size,
        feed_forward=FeedForward(
            config.intermediate_size,
            num_products=2 if config.family in _WITHOUT_GATE else 3,
            num_experts=max(1, config.num_experts),
            num_chosen=max(1, config.num_experts_per_token),
        ),
        weight_bytes=weight_bytes,
    )
