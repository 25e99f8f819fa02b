"""A small random model with 64 KiB of KV a token, so that a prompt of a thousand tokens is large and soon computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter

from tests.gateway.tiny import END, KINDS, MERGES, START, TOKENS

LAYERS, HEADS, HEAD_DIM, HIDDEN, INNER = 16, 16, 64, 64, 64
CONTEXT = 4096
TOKEN_BYTES = LAYERS * 2 * HEADS * HEAD_DIM * 2
"""Of a token's keys and values, in bfloat16."""
LETTERS = slice(ord("a"), ord("z") + 1)
"""Tokens that it answers: each can be told from the others in a text. The logits of all others are 0."""
DEVIATION, EMBEDDED = 0.2, 20.0
"""Of weights, and of embeddings that many times: what comes next depends on the last token and on all before it."""


def write_wide_model(path: Path, num_kv_heads: int = HEADS) -> Path:
    """A GGUF file, the same each time. Its tokens are bytes; several heads may share keys and values."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(num_kv_heads)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(START)
    writer.add_token_list(TOKENS)
    writer.add_token_types([int(kind) for kind in KINDS])
    writer.add_token_merges(MERGES)
    for name, values in _tensors(num_kv_heads * HEAD_DIM).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(kv_size: int) -> dict[str, npt.NDArray[np.float32]]:
    numbers = np.random.default_rng(0)
    heads = HEADS * HEAD_DIM
    products = {"attn_q": (heads, HIDDEN), "attn_k": (kv_size, HIDDEN), "attn_v": (kv_size, HIDDEN)}
    products |= {"attn_output": (HIDDEN, heads), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN)}
    products |= {"ffn_down": (HIDDEN, INNER)}
    shapes = {"token_embd.weight": (len(TOKENS), HIDDEN)} | {
        f"blk.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in products.items()
    }
    norms = ["output_norm.weight"]
    norms += [f"blk.{layer}.{name}.weight" for layer in range(LAYERS) for name in ("attn_norm", "ffn_norm")]
    tensors = {name: DEVIATION * numbers.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    tensors["token_embd.weight"] *= EMBEDDED
    output = np.zeros((len(TOKENS), HIDDEN), np.float32)
    output[LETTERS] = numbers.standard_normal(output[LETTERS].shape, dtype=np.float32)
    return tensors | {"output.weight": output} | {name: np.ones(HIDDEN, np.float32) for name in norms}
