"""The configuration of a model in the metadata of a GGUF file: Llama, Qwen2 and Qwen3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gguf import GGUFReader

from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.fields import Fields

ROPE_FACTORS_TENSOR = "rope_freqs.weight"
"""Llama 3 files hold the factors of their rotary embedding ready made."""

_FAMILIES = {"llama": Family.LLAMA, "qwen2": Family.QWEN2, "qwen3": Family.QWEN3}


def read_gguf_config(reader: GGUFReader, path: Path) -> ModelConfig:
    """The configuration in an open GGUF file; `ModelFileError` where it is incomplete or not supported."""

    def lookup(key: str) -> object:
        found = reader.fields.get(key)
        return None if found is None else found.contents()

    fields = Fields(lookup, path)
    arch = fields.text("general.architecture", default="")
    if arch not in _FAMILIES:
        raise fields.error(f"architecture {arch!r} is not supported; {', '.join(map(repr, _FAMILIES))} are")
    if fields.optional_count(f"{arch}.expert_count") is not None:
        raise fields.error("a mixture of experts is supported as a directory of safetensors files, not as GGUF")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        raise fields.error("tensor token_embd.weight is missing")
    num_layers = fields.number(f"{arch}.block_count", int)
    hidden_size = fields.number(f"{arch}.embedding_length", int)
    num_heads = fields.number(f"{arch}.attention.head_count", int)
    num_kv_heads = fields.number(f"{arch}.attention.head_count_kv", int, default=num_heads)
    head_dim = fields.number(f"{arch}.attention.key_length", int, default=hidden_size // num_heads)
    if num_heads % num_kv_heads:
        raise fields.error(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    if fields.number(f"{arch}.attention.value_length", int, default=head_dim) != head_dim:
        raise fields.error("keys and values of different size are not supported")
    window = fields.optional_count(f"{arch}.attention.sliding_window")
    return ModelConfig(
        family=_FAMILIES[arch],
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.number(f"{arch}.feed_forward_length", int),
        vocab_size=int(tensors["token_embd.weight"].shape[-1]),  # GGUF names the fastest dimension first
        context_length=fields.number(f"{arch}.context_length", int),
        norm_epsilon=fields.number(f"{arch}.attention.layer_norm_rms_epsilon", float),
        tied_embedding="output.weight" not in tensors,
        eos_token_ids=fields.token_ids("tokenizer.ggml.eos_token_id") | fields.token_ids("tokenizer.ggml.eot_token_id"),
        rope=_rope(fields, arch, head_dim, tensors.get(ROPE_FACTORS_TENSOR)),
        windows=(window,) * num_layers if window is not None else (),
    )


def _rope(fields: Fields, arch: str, head_dim: int, stored: Any | None) -> Rope:
    if head_dim % 2 or fields.number(f"{arch}.rope.dimension_count", int, default=head_dim) != head_dim:
        raise fields.error("rotary embedding of a part of a head is not supported")
    theta = fields.number(f"{arch}.rope.freq_base", float, default=10_000.0)
    scaling_type = fields.text(f"{arch}.rope.scaling.type", default="none")
    if scaling_type not in ("none", "linear"):
        raise fields.error(f"scaled rotary embeddings of type {scaling_type!r} are not supported")
    if stored is not None:
        factors = tuple(float(factor) for factor in stored.data)
        if scaling_type != "none" or len(factors) != head_dim // 2 or not all(factor > 0 for factor in factors):
            raise fields.error(
                f"tensor {ROPE_FACTORS_TENSOR} does not hold one positive factor for each pair of a head"
            )
        return Rope(theta, factors)
    if scaling_type == "none":
        return Rope(theta)
    factor = fields.number(f"{arch}.rope.scaling.factor", float)
    return Rope(theta, (factor,) * (head_dim // 2))
