"""A model file as `shared.config.hardware` describes the models of its catalogue."""

from __future__ import annotations

from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from shared.config.hardware import ModelShape


def shape_of(name: str, config: ModelConfig, weight_bytes: float) -> ModelShape:
    """Sizes of a model whose parameters take ``weight_bytes`` each.

    All experts of a mixture count, as if each of them had rows in every step.
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
        weight_bytes=weight_bytes,
    )
