"""A tiny encoder of Nomic's with random weights, as `transformers` makes it, in a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import NomicBertConfig, NomicBertModel

from tests.gateway.encoder_tiny import write_tokenizer
from tests.gpu_node.encoder_model import LONGEST
from tests.gpu_node.gguf_encoders import tokenizer_keys
from tests.gpu_node.gguf_files import Array, write_gguf

NUM_LAYERS = 2
THETA = 1000.0
_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": NUM_LAYERS, "num_attention_heads": 4}
_NAMES = {
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm",
}


def save_nomic(path: Path) -> Any:
    """Writes ``m.gguf`` into ``path``; returns the model, norms random too."""
    torch.manual_seed(8)
    vocab_size = max(write_tokenizer(path), 300)
    positions = {"max_position_embeddings": LONGEST, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
    model = NomicBertModel(NomicBertConfig(**_SIZES, **positions, vocab_size=vocab_size, initializer_range=0.3)).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            low = 0.5 if name.endswith("weight") else -0.5
            parameter.data.uniform_(low, low + 1)
    # a file is written of the sizes of a directory; this one has those of a BERT
    sizes = _SIZES | {"model_type": "bert", "max_position_embeddings": LONGEST, "vocab_size": vocab_size}
    (path / "config.json").write_text(json.dumps(sizes))
    write_nomic(path, nomic_tensors(model))
    return model


def write_nomic(path: Path, tensors: dict[str, Array], **metadata: Any) -> Path:
    """``m.gguf`` with these tensors."""
    fields: dict[str, Any] = {"rope__freq_base": THETA, "attention__causal": False, "pooling_type": 1} | metadata
    keys = tokenizer_keys(path)
    return write_gguf(path / "m.gguf", path, arch="nomic-bert", tensors=tensors, keys=keys, **fields)


def nomic_tensors(model: Any) -> dict[str, Array]:
    """By their names in GGUF: queries, keys and values in one."""
    state = {name: values.numpy() for name, values in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["embeddings.word_embeddings.weight"],
        "token_types.weight": state["embeddings.token_type_embeddings.weight"],
        "token_embd_norm.weight": state["embeddings.LayerNorm.weight"],
        "token_embd_norm.bias": state["embeddings.LayerNorm.bias"],
    }
    for layer in range(NUM_LAYERS):
        place = f"layers.{layer}."
        joined = [state[f"{place}self_attn.{name}_proj.weight"] for name in ("q", "k", "v")]
        tensors[f"blk.{layer}.attn_qkv.weight"] = np.concatenate(joined)
        for name, found in _NAMES.items():
            for kind in ("weight", "bias"):
                if (values := state.get(f"{place}{name}.{kind}")) is not None:
                    tensors[f"blk.{layer}.{found}.{kind}"] = values
    return tensors
