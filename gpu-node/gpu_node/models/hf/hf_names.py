"""Where the weights of each family lie in files in Hugging Face layout."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpu_node.models.config import ENCODERS, Family, ModelConfig
from gpu_node.models.hf.hf_encoder_names import ENCODER_PREFIXES, MODERN_HEAD, is_encoder_extra, stored_of_encoder
from gpu_node.models.tensors.stored import Stored


def prefix(family: Family) -> str:
    """What the names of all tensors but the head's may begin with; files of the bare model leave it out."""
    return _PREFIXES.get(family, "model.")


_PREFIXES = {
    Family.GPT2: "transformer.",
    Family.OPT: "model.decoder.",
} | ENCODER_PREFIXES


def is_superfluous(name: str, family: Family) -> bool:
    """Tensors that some files hold besides the weights that are wanted: constants, and the head where it is the
    embedding itself, or the model embeds or scores. Of encoders, all that training put behind the last layer."""
    if family in ENCODERS:
        return is_encoder_extra(name)
    return name == "lm_head.weight" or _CONSTANTS.fullmatch(name) is not None


def full_name(name: str, family: Family) -> str:
    """As it stands in files of the whole model."""
    is_head = name.removesuffix(".weight") in _HEADS or name.startswith((_CLASSIFIER, MODERN_HEAD))
    return name if is_head else prefix(family) + name


_HEADS = ("lm_head", "score")
"""Of language models and of classifiers; they stand beside the model, without its prefix."""
_CONSTANTS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Causal masks in old GPT-2 files, frequencies of rotary embeddings in old Llama files."""
_CLASSIFIER = "classifier."


def stored(weight: str, config: ModelConfig) -> Stored:
    """Where the files hold the weight of a canonical name."""
    if weight in _HEADS and not config.is_encoder:
        return Stored((f"{weight}.weight",))
    if config.family is Family.OPT and weight == "position_embedding":
        return Stored(("embed_positions.weight",), num_skipped_rows=2)
    name, is_bias = weight.removesuffix("_bias"), weight.endswith("_bias")
    suffix = "bias" if is_bias else "weight"
    if config.is_encoder:
        return stored_of_encoder(name, suffix, config)
    if not weight.startswith("layers."):
        return Stored((f"{_MODEL[config.family][name]}.{suffix}",))
    _, layer, name = name.split(".")
    if config.family is Family.GPT2:
        place = f"h.{layer}.{_GPT2_LAYER[name]}.{suffix}"
        transposed = not is_bias and not name.endswith("norm")  # its linear layers are called Conv1D
        if name in ("q", "k", "v"):
            return Stored((place,), transposed=transposed, part=("q", "k", "v").index(name), num_parts=3)
        return Stored((place,), transposed=transposed)
    if name in _EXPERTS:
        experts = (f"layers.{layer}.block_sparse_moe.experts.{expert}" for expert in range(config.num_experts))
        return Stored(tuple(f"{expert}.{_EXPERTS[name]}.weight" for expert in experts), stacked=True)
    names = _OPT_LAYER if config.family is Family.OPT else _ROTARY_LAYER
    return Stored((f"layers.{layer}.{names[name]}.{suffix}",))


_ROTARY_MODEL = {"embedding": "embed_tokens", "norm": "norm"}
_MODEL: Mapping[Family, Mapping[str, str]] = dict.fromkeys(Family, _ROTARY_MODEL) | {
    Family.OPT: {"embedding": "embed_tokens", "norm": "final_layer_norm"},
    Family.GPT2: {"embedding": "wte", "position_embedding": "wpe", "norm": "ln_f"},
}
_ATTENTION = {name: f"self_attn.{name}_proj" for name in ("q", "k", "v")}
_ROTARY_LAYER = _ATTENTION | {
    "attention_norm": "input_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "router": "block_sparse_moe.gate",
}
_EXPERTS = {"experts_gate": "w1", "experts_up": "w3", "experts_down": "w2"}
_OPT_LAYER = _ATTENTION | {
    "attention_norm": "self_attn_layer_norm",
    "o": "self_attn.out_proj",
    "mlp_norm": "final_layer_norm",
    "up": "fc1",
    "down": "fc2",
}
_GPT2_LAYER = dict.fromkeys(("q", "k", "v"), "attn.c_attn") | {
    "attention_norm": "ln_1",
    "o": "attn.c_proj",
    "mlp_norm": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
