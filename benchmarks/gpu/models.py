"""Configurations of models that run with made-up weights: a tiny one of each family, and Llama 3 8B."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.config.engines.engine import ModelSpec

CONTEXT = 36
VOCAB = 96
_TINY: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {**_TINY, "model_type": "llama"},
    "mistral": {**_TINY, "model_type": "mistral", "sliding_window": 7},
    "qwen2": {**_TINY, "model_type": "qwen2"},
    "qwen3": {**_TINY, "model_type": "qwen3"},
    "mixtral": {**_TINY, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": {
        "model_type": "opt",
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
        "word_embed_proj_dim": 64,
    },
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCAB,
        "n_embd": 64,
        "n_inner": 48,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": CONTEXT,
    },
}
LLAMA_3_8B: Mapping[str, Any] = {  # config.json of Meta-Llama-3-8B
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 4_096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8_192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": False,
}


def dummy(name: str, config: Mapping[str, Any], folder: Path, max_model_len: int = CONTEXT) -> ModelSpec:
    """A model of a configuration, which is written into a ``folder`` of its own."""
    path = folder / name
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return ModelSpec(name=name, source=str(path), max_model_len=max_model_len, load_format="dummy")
