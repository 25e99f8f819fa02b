"""Where the weights of encoders lie in files in Hugging Face layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.tensors.stored import Stored

ENCODER_PREFIXES: Final = {
    Family.BERT: "bert.",
    Family.ROBERTA: "roberta.",
    Family.XLM_ROBERTA: "roberta.",
    Family.NOMIC_BERT: "nomic_bert.",
    Family.NEW: "new.",
    Family.GTE: "gte.",
}
"""Of all tensors but the heads'; a ModernBERT's is that of language models."""
MODERN_HEAD: Final = "head."
"""The layer before the labels of a ModernBERT, beside the model."""
_EXTRAS = re.compile(r"embeddings\.(position|token_type)_ids|(pooler|cls|lm_head|classifier|head|decoder)\..*")
"""Counts from 0 in old files; the pooler, and heads: for pre-training, or of labels."""


def is_encoder_extra(name: str) -> bool:
    """Of tensors without the model's prefix: all that training put behind the last layer."""
    return _EXTRAS.fullmatch(name) is not None


def stored_of_encoder(name: str, suffix: str, config: ModelConfig) -> Stored:
    """Where the files hold a weight (or, by its ``suffix``, a bias) of a canonical name."""
    if name == "position_embedding":
        return Stored(("embeddings.position_embeddings.weight",), num_skipped_rows=config.num_skipped_positions)
    if not name.startswith("layers."):
        return Stored((f"{_MODEL[config.family][name]}.{suffix}",))
    _, layer, name = name.split(".")
    place, names = _LAYER[config.family]
    for joined, parts in _JOINED.get(config.family, {}).items():
        if name in parts:
            return Stored((f"{place}.{layer}.{joined}.{suffix}",), part=parts.index(name), num_parts=len(parts))
    return Stored((f"{place}.{layer}.{names[name]}.{suffix}",))


_BERT_MODEL = {
    "embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
    "score": "classifier",
}
_ROBERTA_MODEL = _BERT_MODEL | {"pooler": "classifier.dense", "score": "classifier.out_proj"}
_MODEL: Mapping[Family, Mapping[str, str]] = {
    Family.BERT: _BERT_MODEL,
    Family.ROBERTA: _ROBERTA_MODEL,
    Family.XLM_ROBERTA: _ROBERTA_MODEL,
    Family.NOMIC_BERT: _BERT_MODEL | {"embedding_norm": "emb_ln"},
    Family.NEW: _BERT_MODEL,
    Family.GTE: _BERT_MODEL,
    Family.MODERN_BERT: {
        "embedding": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        "norm": "final_norm",
        "pooler": "head.dense",
        "pooler_norm": "head.norm",
        "score": "classifier",
    },
}
_BERT_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_NOMIC_LAYER = {
    "o": "attn.out_proj",
    "attention_norm": "norm1",
    "gate": "mlp.fc12",
    "up": "mlp.fc11",
    "down": "mlp.fc2",
    "mlp_norm": "norm2",
}
_GTE_LAYER = {"o": "attention.o_proj", "attention_norm": "attn_ln", "down": "mlp.down_proj", "mlp_norm": "mlp_ln"}
_MODERN_LAYER = {"o": "attn.Wo", "attention_norm": "attn_norm", "down": "mlp.Wo", "mlp_norm": "mlp_norm"}
_LAYER: Mapping[Family, tuple[str, Mapping[str, str]]] = {
    **dict.fromkeys((Family.BERT, Family.ROBERTA, Family.XLM_ROBERTA), ("encoder.layer", _BERT_LAYER)),
    Family.NOMIC_BERT: ("encoder.layers", _NOMIC_LAYER),
    **dict.fromkeys((Family.NEW, Family.GTE), ("encoder.layer", _GTE_LAYER)),
    Family.MODERN_BERT: ("layers", _MODERN_LAYER),
}
"""Where the layers lie, and the names of what is a tensor of its own in one."""
_QKV = ("q", "k", "v")
_JOINED: Mapping[Family, Mapping[str, tuple[str, ...]]] = {
    Family.NOMIC_BERT: {"attn.Wqkv": _QKV},
    **{one: {"attention.qkv_proj": _QKV, "mlp.up_gate_proj": ("up", "gate")} for one in (Family.NEW, Family.GTE)},
    Family.MODERN_BERT: {"attn.Wqkv": _QKV, "mlp.Wi": ("gate", "up")},
}
"""Tensors that hold several weights side by side."""
