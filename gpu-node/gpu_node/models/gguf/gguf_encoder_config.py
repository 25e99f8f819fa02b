"""The configuration of an encoder in the metadata of a GGUF file: BERT, RoBERTa's kin (BERT by name), Nomic's,
ModernBERT.

llama.cpp's converter leaves out the rows of positions that no token has, and sizes that tensors tell.
"""

from __future__ import annotations

from typing import Final

from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.fields import MAX_LAYERS, Fields
from shared.files.gguf_file import GgufFile

SEGMENT_TENSOR: Final = "token_types.weight"
_SEGMENTS_KEY: Final = "tokenizer.ggml.token_type_count"


def encoder_config(fields: Fields, file: GgufFile, family: Family, vocab_size: int) -> ModelConfig:
    """`ModelFileError` where the metadata are incomplete or not supported."""
    arch = fields.text("general.architecture", default="")
    hidden_size = fields.number(f"{arch}.embedding_length", int)
    num_heads = fields.number(f"{arch}.attention.head_count", int)
    if hidden_size % num_heads:
        raise fields.error(f"{hidden_size} columns cannot be shared by {num_heads} heads")
    if fields.flag(f"{arch}.attention.causal", default=False):
        raise fields.error(f"{arch}.attention.causal is true, but an encoder's tokens see those behind them")
    num_layers = fields.number(f"{arch}.block_count", int, most=MAX_LAYERS)
    windows, window_rope = _windows(fields, arch, num_layers) if family is Family.MODERN_BERT else ((), None)
    return ModelConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=fields.number(f"{arch}.feed_forward_length", int),
        vocab_size=vocab_size,
        context_length=fields.number(f"{arch}.context_length", int),
        norm_epsilon=fields.number(f"{arch}.attention.layer_norm_epsilon", float),
        tied_embedding=True,
        eos_token_ids=fields.token_ids("tokenizer.ggml.eos_token_id"),
        windows=windows,
        window_rope=window_rope,
        num_segments=_num_segments(fields, file),
    )


def _windows(fields: Fields, arch: str, num_layers: int) -> tuple[tuple[int | None, ...], Rope]:
    """Of a ModernBERT: a window is of both sides together, and the first of every few layers has none. Its rotary
    embeddings have two bases, neither of which is what a GGUF file without them is taken to have."""
    for key in (f"{arch}.rope.freq_base", f"{arch}.rope.freq_base_swa"):
        if not fields.has(key):
            raise fields.error(f"{key} is missing; convert the model anew, or serve its directory")
    window = fields.number(f"{arch}.attention.sliding_window", int) // 2 + 1
    every = fields.number(f"{arch}.attention.sliding_window_pattern", int, default=3)
    windows = tuple(window if layer % every else None for layer in range(num_layers))
    return windows, Rope(fields.number(f"{arch}.rope.freq_base_swa", float))


def _num_segments(fields: Fields, file: GgufFile) -> int:
    """Rows of the embedding of segments, which a DistilBERT does not have."""
    stored = file.tensors.get(SEGMENT_TENSOR)
    if stored is not None:
        return stored.shape[0] if len(stored.shape) > 1 else 1
    if fields.index(_SEGMENTS_KEY, default=1) > 1:
        raise fields.error(f"tensor {SEGMENT_TENSOR} is missing, but {_SEGMENTS_KEY} says that there are several")
    return 0
