"""Tiny encoders with rotary positions and random weights: ModernBERT, Nomic's and GTE's, as `transformers` makes and
saves them, and as the files of Nomic's and GTE's authors say the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from tests.gateway.encoder_tiny import write_tokenizer

LONGEST = 90
"""Tokens of a text."""
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.3,
}
_ENDS = {"bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "pad_token_id": 0}
TURNED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "modernbert": (
        "modern-bert",
        {"num_hidden_layers": 4, "local_attention": 12, "initializer_cutoff_factor": 3.0} | _ENDS,
    ),
    "nomic_bert": ("bert", {"pad_token_id": 0}),
    "gte": ("xlm-roberta", {"pad_token_id": 1}),
}
"""By ``model_type``: the style of the tokenizer, and what the configuration has besides sizes."""
_HEADS = ("classifier.weight", "classifier.bias")
NOMIC_FLAGS = {
    "activation_function": "swiglu",
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_base": 1000,
    "rotary_scaling_factor": None,
}


def save_turned(name: str, path: Path, *, is_classifier: bool = False, **changes: Any) -> Any:
    """A model of that ``model_type``, norms and biases random too, with its tokenizer; returns it."""
    torch.manual_seed(4)
    style, fields = TURNED[name]
    sizes = _SIZES | {"vocab_size": max(write_tokenizer(path, style), 360)}
    labels = {"num_labels": 1} if is_classifier else {}
    config = AutoConfig.for_model(name, **sizes | fields | labels | changes)
    model = (AutoModelForSequenceClassification if is_classifier else AutoModel).from_config(config).eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            low = 0.5 if parameter_name.endswith("weight") else -0.5
            parameter.data.uniform_(low, low + 1)
    model.save_pretrained(path)
    return model


def change_config(path: Path, **changes: Any) -> None:
    """Of ``config.json`` in ``path``; None takes a key out."""
    values = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: one for key, one in values.items() if one is not None}))


def as_nomic_writes_it(path: Path, **changes: Any) -> None:
    """``config.json`` with the keys of a GPT-2, as nomic-embed-text has it."""
    values = json.loads((path / "config.json").read_text())
    names = {
        "n_embd": "hidden_size",
        "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
    }
    kept = ("model_type", "vocab_size", "type_vocab_size", "architectures")
    found = {ours: values[theirs] for ours, theirs in names.items()} | {key: values[key] for key in kept}
    (path / "config.json").write_text(json.dumps(found | NOMIC_FLAGS | changes))


def as_gte_writes_it(path: Path, **changes: Any) -> None:
    """``model_type`` and names of tensors as in gte-multilingual-base, beside a head that nobody asks for."""
    rope = {"rope_parameters": None, "rope_theta": 160_000.0, "position_embedding_type": "rope"}
    change_config(path, **{"model_type": "new", "pack_qkv": True, "layer_norm_type": "layer_norm"} | rope | changes)
    file = path / "model.safetensors"
    tensors = {f"new.{name.removeprefix('gte.')}": values for name, values in load_file(file).items()}
    heads = {
        name: tensors.pop(f"new.{name}")
        for name in ("classifier.weight", "classifier.bias")
        if f"new.{name}" in tensors
    }
    save_file(tensors | (heads or {"classifier.weight": torch.zeros(1, 32)}), file)


LENGTHS = (1, 2, 7, 8, 40, 65, LONGEST)
"""Of texts: windows have 6 tokens on either side, tiles 64."""


def texts(*lengths: int) -> list[list[int]]:
    """Token ids of texts of these lengths, or of `LENGTHS`."""
    return [[5 + (7 * place + 13 * length) % 290 for place in range(length)] for length in lengths or LENGTHS]
