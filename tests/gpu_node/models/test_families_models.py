"""Tiny random models of each family as `transformers` makes and saves them; and that all families are among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gpu_node.models.config import ENCODERS, Family
from tests.gpu_node import tiny

_COMMON: dict[str, Any] = {
    "vocab_size": tiny.VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": tiny.CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": tiny.EOS,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: Mapping[str, dict[str, Any]] = {
    "llama": _COMMON | {"tie_word_embeddings": True},
    "llama-linear": _COMMON
    | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}, "head_dim": 16},
    "llama-llama3": _COMMON | {"rope_parameters": _LLAMA3},
    "mistral": _COMMON | {"sliding_window": 6},
    "qwen2": _COMMON | {"tie_word_embeddings": True},
    "qwen2-window": _COMMON | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": _COMMON | {"head_dim": 16},
    "mixtral": _COMMON | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None},
    "opt": {
        "vocab_size": tiny.VOCAB,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": tiny.CONTEXT,
        "word_embed_proj_dim": 32,
        "init_std": 0.3,
        "eos_token_id": tiny.EOS,
    },
    "gpt2": {
        "vocab_size": tiny.VOCAB,
        "n_embd": 32,
        "n_inner": 48,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": tiny.CONTEXT,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": tiny.EOS,
    },
}


def save_config(name: str, path: Path, **changes: Any) -> None:
    """Save the configuration alone of the model of that name."""
    AutoConfig.for_model(name.split("-")[0], **FAMILIES[name] | changes).save_pretrained(path)


def save(name: str, path: Path, *, num_shards: int = 1, **changes: Any) -> Any:
    """Make the model of that name with random weights, norms and biases included, and save it; returns it."""
    torch.manual_seed(4)
    config = AutoConfig.for_model(name.split("-")[0], **FAMILIES[name] | changes)
    model = AutoModelForCausalLM.from_config(config)
    model.train(False)
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # ones and zeros would hide a norm or a bias with the wrong weights
            low = 0.5 if parameter_name.endswith("weight") else -0.5
            parameter.data.uniform_(low, low + 1)
    num_bytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    model.save_pretrained(path, max_shard_size=num_bytes // num_shards + 1)
    return model


def test_every_family_is_among_the_tiny_models() -> None:
    assert {name.split("-")[0] for name in FAMILIES} == set(Family) - ENCODERS  # those are in encoder_model.py
