"""Where the weights of each family lie in GGUF files."""

from __future__ import annotations

from collections.abc import Collection

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.gguf.gguf_config import HEAD_TENSOR, ROPE_FACTORS_TENSOR
from gpu_node.models.tensors.stored import Stored
from shared.files.classifier import CLASSIFIER_TENSOR


def is_superfluous(name: str, config: ModelConfig, weights: Collection[str]) -> bool:
    """Tensors that files hold besides the wanted ``weights``, by canonical name: the head of a model that is not for
    text, or of an encoder that embeds."""
    if config.is_encoder:
        return name.startswith(_CLASSIFIER) and "score" not in weights
    if name == HEAD_TENSOR:
        return "lm_head" not in weights
    return name == ROPE_FACTORS_TENSOR and config.rope is not None


def stored(weight: str, config: ModelConfig, names: Collection[str]) -> Stored:
    """Where a file with the tensors ``names`` holds the weight of a canonical name.

    ``layers.3.q`` is ``blk.3.attn_q.weight``, ``layers.3.q_bias`` its bias. Files of before April 2024 hold each expert
    as a tensor of its own: ``blk.3.ffn_up.0.weight``.
    """
    suffix = "bias" if weight.endswith("_bias") else "weight"
    name = weight.removesuffix("_bias")
    if name in _MODEL:
        return Stored((f"{_MODEL[name]}.{suffix}",))
    _, layer, name = name.split(".")
    if config.is_encoder:
        is_modern = config.family is Family.MODERN_BERT
        return (_stored_of_modern if is_modern else _stored_of_encoder)(f"blk.{layer}", name, suffix, names)
    if name in _EXPERTS:
        whole = f"blk.{layer}.ffn_{_EXPERTS[name]}_exps.weight"
        parts = tuple(f"blk.{layer}.ffn_{_EXPERTS[name]}.{expert}.weight" for expert in range(config.num_experts))
        return Stored(parts, stacked=True) if whole not in names and parts[0] in names else Stored((whole,))
    if config.family is Family.GPT2 and name in _JOINED:
        return Stored((f"blk.{layer}.attn_qkv.{suffix}",), part=_JOINED.index(name), num_parts=len(_JOINED))
    return Stored((f"blk.{layer}.{_LAYER[name]}.{suffix}",))


def _stored_of_encoder(layer: str, name: str, suffix: str, names: Collection[str]) -> Stored:
    """Norms come behind each half of a layer; queries, keys and values may lie in one tensor."""
    joined = f"{layer}.attn_qkv.{suffix}"
    if name in _JOINED and joined in names:
        return Stored((joined,), part=_JOINED.index(name), num_parts=len(_JOINED))
    return Stored((f"{layer}.{_ENCODER_LAYER.get(name, _LAYER[name])}.{suffix}",))


def _stored_of_modern(layer: str, name: str, suffix: str, names: Collection[str]) -> Stored:
    """Norms come before; what gates lies before what is gated, in one tensor."""
    if name in _GATED:
        return Stored((f"{layer}.ffn_up.{suffix}",), part=_GATED.index(name), num_parts=len(_GATED))
    if name in _NORMS:
        return Stored((f"{layer}.{_LAYER[name]}.{suffix}",))
    return _stored_of_encoder(layer, name, suffix, names)


_CLASSIFIER = "cls."
_MODEL = {
    "segment_embedding": "token_types",
    "embedding_norm": "token_embd_norm",
    "pooler": "cls",
    "embedding": "token_embd",
    "position_embedding": "position_embd",
    "norm": "output_norm",
    "lm_head": HEAD_TENSOR.removesuffix(".weight"),
    "score": CLASSIFIER_TENSOR.removesuffix(".weight"),
}
_LAYER = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "router": "ffn_gate_inp",
}
_ENCODER_LAYER = {"attention_norm": "attn_output_norm", "mlp_norm": "layer_output_norm"}
_JOINED = ("q", "k", "v")
_GATED = ("gate", "up")
_NORMS = ("attention_norm", "mlp_norm")
_EXPERTS = {"experts_gate": "gate", "experts_up": "up", "experts_down": "down"}
