"""How a model divides the KV memory that the configuration gives it."""

from __future__ import annotations

from gpu_node.engine.model import LoadedModel
from gpu_node.executors.executor import num_kv_blocks
from gpu_node.models.config import ModelConfig
from shared.config import EngineOptions, ModelSpec


def loaded_model(spec: ModelSpec, config: ModelConfig, options: EngineOptions, number_bytes: int) -> LoadedModel:
    """What bookkeeping is told of a model whose KV cache holds numbers of ``number_bytes``.

    Raises `ModelTooLargeError` when one sequence of full length would not fit.
    """
    block_size = options.block_size
    block_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * block_size * number_bytes
    max_model_len = min(spec.max_model_len, config.context_length)
    return LoadedModel(
        name=spec.name,
        num_blocks=num_kv_blocks(options.kv_cache_bytes, block_bytes, block_size, max_model_len, spec.name),
        block_size=block_size,
        block_bytes=block_bytes,
        max_model_len=max_model_len,
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids,
    )
