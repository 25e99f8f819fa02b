"""Tiny models whose weights are zeros, in both kinds of files, made from the programs themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.architectures.layers.rotary import ROPE_FACTORS
from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.gguf import gguf_names
from gpu_node.models.hf import hf_names
from tests.fuzz.gguf_bytes import ARRAY, STRING, written

_ROPE_FAMILIES = (Family.LLAMA, Family.QWEN2, Family.MIXTRAL)
_UINT32, _FLOAT32 = 4, 6


def config_of(family: Family) -> ModelConfig:
    """As small as a model can be."""
    is_rotary, num_experts = family in _ROPE_FAMILIES, 2 if family is Family.MIXTRAL else 0
    return ModelConfig(
        family=family,
        num_layers=1,
        hidden_size=4,
        num_heads=2,
        num_kv_heads=1 if is_rotary else 2,
        head_dim=2,
        intermediate_size=4,
        vocab_size=4,
        context_length=8,
        norm_epsilon=0.5,
        tied_embedding=True,
        eos_token_ids=frozenset([2]),
        rope=Rope(10_000.0) if is_rotary else None,
        num_experts=num_experts,
        num_experts_per_token=min(num_experts, 1),
    )


def stored_shapes(program: Program) -> dict[str, tuple[int, ...]]:
    """What of the program's weights lies in files, by canonical name."""
    pieces = (piece for weight in program.weights for piece in weight.sources)
    return {piece.tensor: piece.stored_shape for piece in pieces if piece.tensor != ROPE_FACTORS}


def gguf_model(family: Family) -> bytes:
    """A GGUF file."""
    config = config_of(family)
    arch = "llama" if family is Family.MIXTRAL else str(family)
    tensors: list[list[Any]] = []
    num_bytes = 0
    for name, shape in stored_shapes(build_program(config)).items():
        place = gguf_names.stored(name, config, ())
        for tensor in place.names:
            if tensor not in (one[0] for one in tensors):
                sizes = place.shape(shape)
                tensors.append([tensor, list(reversed(sizes)), 0, num_bytes])
                num_bytes += -(-_volume(sizes) * 4 // 32) * 32
    keys = [["general.architecture", STRING, arch], ["tokenizer.ggml.eos_token_id", _UINT32, 2]]
    keys += [
        [f"{arch}.{key}", _FLOAT32 if isinstance(value, float) else _UINT32, value] for key, value in _keys(config)
    ]
    keys += [["general.tags", ARRAY, [STRING, ["tiny"]]]]
    return written({"version": 3, "keys": keys, "tensors": tensors, "data": bytes(num_bytes)})


def _keys(config: ModelConfig) -> list[tuple[str, int | float]]:
    keys: list[tuple[str, int | float]] = [
        ("block_count", config.num_layers),
        ("context_length", config.context_length),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.num_heads),
    ]
    if config.rope is None:
        return [*keys, ("attention.layer_norm_epsilon", config.norm_epsilon)]
    keys += [("attention.head_count_kv", config.num_kv_heads), ("attention.key_length", config.head_dim)]
    keys += [("attention.layer_norm_rms_epsilon", config.norm_epsilon), ("rope.freq_base", 10_000.0)]
    keys += [("attention.sliding_window", 4), ("rope.scaling.factor", 2.0)]
    if config.num_experts:
        keys += [("expert_count", config.num_experts), ("expert_used_count", config.num_experts_per_token)]
    return keys


def safetensors_model(family: Family) -> bytes:
    """A safetensors file."""
    config = config_of(family)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in stored_shapes(build_program(config)).items():
        place = hf_names.stored(name, config)
        shapes |= dict.fromkeys((hf_names.prefix(family) + tensor for tensor in place.names), place.shape(shape))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    num_bytes = 0
    for name, shape in shapes.items():
        end = num_bytes + _volume(shape) * 4
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [num_bytes, end]}
        num_bytes = end
    return sealed(header, bytes(num_bytes))


def sealed(header: Mapping[str, Any], data: bytes) -> bytes:
    """A safetensors file of a header and what follows it."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def hf_config(family: Family) -> dict[str, Any]:
    """A ``config.json``."""
    config = config_of(family)
    common: dict[str, Any] = {"model_type": str(family), "vocab_size": config.vocab_size, "eos_token_id": [2]}
    common |= {"tie_word_embeddings": True}
    if family is Family.GPT2:
        return common | {"n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 8, "n_inner": 4}
    common |= {"hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 8}
    if family is Family.OPT:
        return common | {"ffn_dim": 4, "word_embed_proj_dim": 4}
    common |= {"num_key_value_heads": 1, "intermediate_size": 4, "head_dim": 2, "sliding_window": 4}
    common |= {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}}
    if family is Family.MIXTRAL:
        common |= {"num_local_experts": 2, "num_experts_per_tok": 1}
    if family is Family.QWEN2:
        common |= {"use_sliding_window": True, "layer_types": ["sliding_attention"]}
    return common


def _volume(shape: tuple[int, ...]) -> int:
    volume = 1
    for size in shape:
        volume *= size
    return volume
