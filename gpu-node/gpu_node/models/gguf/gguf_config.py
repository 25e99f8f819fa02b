"""The configuration of a model in the metadata of a GGUF file: Llama and its relatives, Mixtral, GPT-2, encoders."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gguf import GGMLQuantizationType

from gpu_node.models.config import ENCODERS, Family, ModelConfig, Rope
from gpu_node.models.fields import MAX_EXPERTS, MAX_HEAD_DIM, MAX_LAYERS, MAX_WHOLE, Fields
from gpu_node.models.gguf.gguf_encoder_config import encoder_config
from shared.files.gguf_file import GgufFile, GgufTensor

EMBEDDING_TENSOR = "token_embd.weight"
HEAD_TENSOR = "output.weight"
"""Where there is none, the embedding is the head."""
ROPE_FACTORS_TENSOR = "rope_freqs.weight"
"""Llama 3 files hold the factors of their rotary embedding ready made; it is part of the configuration."""

_FAMILIES = {
    "llama": Family.LLAMA,
    "qwen2": Family.QWEN2,
    "qwen3": Family.QWEN3,
    "gpt2": Family.GPT2,
    "bert": Family.BERT,
    "nomic-bert": Family.NOMIC_BERT,
    "modern-bert": Family.MODERN_BERT,
}


def read_gguf_config(file: GgufFile, path: Path) -> ModelConfig:
    """The configuration in an open GGUF file; `ModelFileError` where it is incomplete or not supported."""
    fields = Fields(file.metadata.get, path)
    arch = fields.text("general.architecture", default="")
    if arch not in _FAMILIES:
        raise fields.error(
            f"architecture {arch!r} is not supported; {', '.join(map(repr, _FAMILIES))} are (OPT has none in GGUF: "
            "serve it as a directory of safetensors files)"
        )
    num_parts = fields.index("split.count", default=1)
    if num_parts > 1:
        raise fields.error(f"it is one of {num_parts} parts of a model; merge them into one file")
    if _FAMILIES[arch] in ENCODERS:
        config = encoder_config(fields, file, _FAMILIES[arch], _vocab_size(fields, file))
        return config if arch == "bert" else replace(config, rope=_rope(fields, file, arch, config.head_dim))
    return _gpt2(fields, file) if arch == "gpt2" else _rotary(fields, file, arch)


def _rotary(fields: Fields, file: GgufFile, arch: str) -> ModelConfig:
    """Llama and its relatives; a Llama with experts is a Mixtral."""
    num_layers = fields.number(f"{arch}.block_count", int, most=MAX_LAYERS)
    hidden_size = fields.number(f"{arch}.embedding_length", int)
    num_heads = fields.number(f"{arch}.attention.head_count", int)
    num_kv_heads = fields.number(f"{arch}.attention.head_count_kv", int, default=num_heads)
    head_dim = fields.number(f"{arch}.attention.key_length", int, default=hidden_size // num_heads, most=MAX_HEAD_DIM)
    if num_heads % num_kv_heads:
        raise fields.error(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    if fields.number(f"{arch}.attention.value_length", int, default=head_dim) != head_dim:
        raise fields.error("keys and values of different size are not supported")
    num_experts = fields.index(f"{arch}.expert_count", default=0)
    if num_experts > MAX_EXPERTS:
        raise fields.error(f"{num_experts} experts are more than {MAX_EXPERTS}")
    if num_experts and arch != "llama":
        raise fields.error(f"experts in architecture {arch!r} are not supported; in 'llama' (Mixtral) they are")
    num_chosen = fields.number(f"{arch}.expert_used_count", int) if num_experts else 0
    if num_chosen > num_experts:
        raise fields.error(f"{num_chosen} of {num_experts} experts cannot be chosen")
    window = fields.optional_count(f"{arch}.attention.sliding_window")
    return ModelConfig(
        family=Family.MIXTRAL if num_experts else _FAMILIES[arch],
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.number(f"{arch}.feed_forward_length", int),
        vocab_size=_vocab_size(fields, file),
        context_length=fields.number(f"{arch}.context_length", int),
        norm_epsilon=fields.number(f"{arch}.attention.layer_norm_rms_epsilon", float),
        tied_embedding=HEAD_TENSOR not in file.tensors,
        eos_token_ids=_eos_token_ids(fields),
        rope=_rope(fields, file, arch, head_dim),
        windows=(window,) * num_layers if window is not None else (),
        num_experts=num_experts,
        num_experts_per_token=num_chosen,
    )


def _gpt2(fields: Fields, file: GgufFile) -> ModelConfig:
    hidden_size = fields.number("gpt2.embedding_length", int)
    num_heads = fields.number("gpt2.attention.head_count", int)
    if hidden_size % num_heads:
        raise fields.error(f"{hidden_size} columns cannot be shared by {num_heads} heads")
    return ModelConfig(
        family=Family.GPT2,
        num_layers=fields.number("gpt2.block_count", int, most=MAX_LAYERS),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=fields.number("gpt2.feed_forward_length", int),
        vocab_size=_vocab_size(fields, file),
        context_length=fields.number("gpt2.context_length", int),
        norm_epsilon=fields.number("gpt2.attention.layer_norm_epsilon", float),
        tied_embedding=HEAD_TENSOR not in file.tensors,
        eos_token_ids=_eos_token_ids(fields),
    )


def _vocab_size(fields: Fields, file: GgufFile) -> int:
    """Rows of the embedding: the metadata need not tell."""
    embedding = file.tensors.get(EMBEDDING_TENSOR)
    if embedding is None:
        raise fields.error(f"tensor {EMBEDDING_TENSOR} is missing")
    if len(embedding.shape) != 2 or not 0 < embedding.shape[0] <= MAX_WHOLE:
        raise fields.error(f"tensor {EMBEDDING_TENSOR} has shape {embedding.shape}, expected a matrix")
    return embedding.shape[0]


def _eos_token_ids(fields: Fields) -> frozenset[int]:
    return fields.token_ids("tokenizer.ggml.eos_token_id") | fields.token_ids("tokenizer.ggml.eot_token_id")


def _rope(fields: Fields, file: GgufFile, arch: str, head_dim: int) -> Rope:
    if head_dim % 2 or fields.number(f"{arch}.rope.dimension_count", int, default=head_dim) != head_dim:
        raise fields.error("rotary embedding of a part of a head is not supported")
    theta = fields.number(f"{arch}.rope.freq_base", float, default=10_000.0)
    scaling_type = fields.text(f"{arch}.rope.scaling.type", default="linear")
    if scaling_type not in ("none", "linear"):
        raise fields.error(
            f"scaled rotary embeddings of type {scaling_type!r} are not supported; 'linear' is, and so are the "
            f"factors of Llama 3 (tensor {ROPE_FACTORS_TENSOR})"
        )
    factor = 1.0
    if scaling_type == "linear":  # a factor without a type is a linear one; files of before 2024 have the second key
        old = fields.number(f"{arch}.rope.scale_linear", float, default=factor)
        factor = fields.number(f"{arch}.rope.scaling.factor", float, default=old)
    linear = (factor,) * (head_dim // 2) if factor != 1.0 else ()
    stored = file.tensors.get(ROPE_FACTORS_TENSOR)
    if stored is None:
        return Rope(theta, linear)
    if linear:
        raise fields.error(f"tensor {ROPE_FACTORS_TENSOR} beside a linear scaling of {factor} is not supported")
    return Rope(theta, _stored_factors(fields, stored, head_dim))


def _stored_factors(fields: Fields, stored: GgufTensor, head_dim: int) -> tuple[float, ...]:
    if stored.type == GGMLQuantizationType.F32 and stored.shape == (head_dim // 2,):
        factors = tuple(float(factor) for factor in stored.data.view("<f4"))
        if all(0 < factor < math.inf for factor in factors):
            return factors
    raise fields.error(f"tensor {stored.name} does not hold one positive float32 factor for each pair of a head")
