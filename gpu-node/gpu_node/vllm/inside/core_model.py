"""What bookkeeping knows of a model that vLLM has loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.vllm import VLLM_VERSION


def core_model(spec: ModelSpec, config: Any, max_num_seqs: int, weights: str) -> LoadedModel:
    """As vLLM has found it when it was ready, with what `image_weights` says. One of its blocks holds nothing, ever.

    A model whose tokens see those behind them has no KV at all; its blocks are made up, as many as are ever asked for,
    so that places alone say how many texts run.
    """
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    num_blocks, token_bytes = cache.num_gpu_blocks - 1, _token_bytes(model, parallel)
    if model.attn_type == "encoder_only":
        num_blocks, token_bytes = max_num_seqs * -(-model.max_model_len // cache.block_size), 0
    return LoadedModel(
        name=spec.name,
        num_blocks=num_blocks,
        block_size=cache.block_size,
        block_bytes=cache.block_size * token_bytes,
        max_model_len=model.max_model_len,
        vocab_size=model.get_vocab_size(),
        eos_token_ids=_eos(model),
        kv_layout=f"{_layout(config)}, {weights}",
        adapters=tuple(one.name for one in spec.adapters),
        task=spec.task,
        step_tokens=config.scheduler_config.max_num_batched_tokens,
        takes_pictures=takes_pictures(spec, config),
    )


def takes_pictures(spec: ModelSpec, config: Any) -> bool:
    """Whether vLLM reads images for it, in prompts of text."""
    model = config.model_config
    if spec.task != "generate" or not model.is_multimodal_model:
        return False
    return bool(model.multimodal_config.get_limit_per_prompt("image"))


def _layout(config: Any) -> str:
    """What content of a block means to its receiver: shapes, types, and how ranks share the heads."""
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    heads = f"{model.get_num_layers(parallel)}x{model.get_num_kv_heads(parallel)}x{model.get_head_size()}"
    device = config.device_config.device_type
    kinds = f"{model.dtype}:{cache.cache_dtype}:tp{parallel.tensor_parallel_size}"
    return f"vllm-{VLLM_VERSION}:{device}:{heads}:{kinds}"


def _token_bytes(model: Any, parallel: Any) -> int:
    """Keys and values of a token, on all devices together."""
    num_heads = model.get_num_kv_heads(parallel) * parallel.tensor_parallel_size
    return int(2 * model.get_num_layers(parallel) * num_heads * model.get_head_size() * model.dtype.itemsize)


def _eos(model: Any) -> frozenset[int]:
    """Of the model's configuration and of its file for generation, where chat models name the end of a turn."""
    found: set[int] = set()
    for ids in (getattr(model.hf_text_config, "eos_token_id", None), _generation(model).get("eos_token_id")):
        found |= {ids} if isinstance(ids, int) else set(ids or ())
    return frozenset(found)


def _generation(model: Any) -> dict[str, Any]:
    from gpu_node.models.hf.hf_config import GENERATION_FILE, read_json_values

    path = Path(model.model, GENERATION_FILE)
    return dict(read_json_values(path)) if path.is_file() else {}
