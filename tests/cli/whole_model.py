"""A model that gateway and node can load, and an adapter of it, small enough to be written in a test: all 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.numpy import save_file

from tests.gateway.tiny import END, KINDS, MERGES, START, TEMPLATE, TOKENS

HEADS, KV_HEADS, HEAD_DIM, LAYERS, INNER = 4, 2, 8, 2, 64
HIDDEN, CONTEXT, VOCAB = HEADS * HEAD_DIM, 4096, len(TOKENS)
TOKEN_KV_BYTES = 2 * LAYERS * KV_HEADS * HEAD_DIM * 2
"""In bfloat16: 128."""


def write_whole(path: Path, *, arch: str = "llama", odd_type: bool = False, **changed: int) -> Path:
    """A GGUF file; ``changed`` replaces numbers of its metadata, ``odd_type`` gives a tensor a type without reader."""
    writer = GGUFWriter(path, arch)
    numbers = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
    } | changed
    for key, value in numbers.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    _add_tokenizer(writer)
    for name, shape in _shapes(numbers["feed_forward_length"]).items():
        is_odd = odd_type and name == "blk.0.ffn_up"
        values: Any = np.zeros(shape, dtype=np.int8 if is_odd else np.float32)
        writer.add_tensor(f"{name}.weight", values, raw_dtype=GGMLQuantizationType.I8 if is_odd else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_adapter(folder: Path, rank: int = 4) -> Path:
    """An adapter of that model as PEFT writes it, of the queries and values of every layer."""
    folder.mkdir(parents=True)
    outputs = {"q_proj": HIDDEN, "v_proj": KV_HEADS * HEAD_DIM}
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(outputs), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for layer in range(LAYERS):
        for name, num_outputs in outputs.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{place}.lora_A.weight"] = np.zeros((rank, HIDDEN), np.float32)
            tensors[f"{place}.lora_B.weight"] = np.zeros((num_outputs, rank), np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def _shapes(inner: int) -> dict[str, tuple[int, ...]]:
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (inner, HIDDEN),
        "ffn_up": (inner, HIDDEN),
        "ffn_down": (HIDDEN, inner),
    }
    layers = {f"blk.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()}
    return {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)} | layers


def _add_tokenizer(writer: GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_token_list(TOKENS)
    writer.add_token_types([int(kind) for kind in KINDS])
    writer.add_token_merges(MERGES)
    writer.add_chat_template(TEMPLATE)
