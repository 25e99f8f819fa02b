"""A model with real weights that costs nothing: two small layers over bytes, made up from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from tests.gateway.tiny import END, KINDS, MERGES, START, TEMPLATE, TOKENS

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 64, 96, 2, 4, 2, 16, 1024
SPREAD = 0.4  # large enough that other contexts give other tokens


def write_tiny_model(path: Path, seed: int = 0) -> Path:
    """A GGUF file; the same bytes for the same seed."""
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    numbers = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"llama.{name}", number)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(START)
    writer.add_token_list(TOKENS)
    writer.add_token_types([int(kind) for kind in KINDS])
    writer.add_token_merges(MERGES)
    writer.add_chat_template(TEMPLATE)
    for name, shape in _shapes().items():
        values = draw.uniform(0.5, 1.5, shape) if "norm" in name else draw.normal(0, SPREAD, shape)
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_gate.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, INNER),
        }
    return shapes
