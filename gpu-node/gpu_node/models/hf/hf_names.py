"""Where the weights of each family lie in files in Hugging Face layout."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpu_node.models.config import ENCODERS, Family, ModelConfig
from gpu_node.models.tensors.stored import Stored


def prefix(family: Family) -> str:
    """What the names of all tensors but the head's may begin with; files of the bare model leave it out."""
    return _PREFIXES.get(family, "model.")


_PREFIXES = {
    Family.GPT2: "transformer.",
    Family.OPT: "model.decoder.",
    Family.BERT: "bert.",
    Family.ROBERTA: "roberta.",
    Family.XLM_ROBERTA: "roberta.",
}


def is_superfluous(name: str, family: Family) -> bool:
    """Tensors that some files hold besides the weights that are wanted: constants, and the head where it is the
    embedding itself, or the model embeds or scores. Of encoders, all that training put behind the last layer."""
    if family in ENCODERS:
        return _ENCODER_EXTRAS.fullmatch(name) is not None
    return name == "lm_head.weight" or _CONSTANTS.fullmatch(name) is not None


def full_name(name: str, family: Family) -> str:
    """As it stands in files of the whole model."""
    is_head = name.removesuffix(".weight") in _HEADS or name.startswith(_CLASSIFIER)
    return name if is_head else prefix(family) + name


_HEADS = ("lm_head", "score")
"""Of language models and of classifiers; they stand beside the model, without its prefix."""
_CONSTANTS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Causal masks in old GPT-2 files, frequencies of rotary embeddings in old Llama files."""
_ENCODER_EXTRAS = re.compile(r"embeddings\.(position|token_type)_ids|(pooler|cls|lm_head|classifier)\..*")
"""Counts from 0 in old files; the pooler, and heads: for pre-training, or of labels."""
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
        return _stored_of_encoder(name, suffix, config)
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


def _stored_of_encoder(name: str, suffix: str, config: ModelConfig) -> Stored:
    if name == "position_embedding":
        return Stored(("embeddings.position_embeddings.weight",), num_skipped_rows=config.num_skipped_positions)
    if not name.startswith("layers."):
        names = _BERT_MODEL if config.family is Family.BERT else _ROBERTA_MODEL
        return Stored((f"{names[name]}.{suffix}",))
    _, layer, name = name.split(".")
    return Stored((f"encoder.layer.{layer}.{_ENCODER_LAYER[name]}.{suffix}",))


_ENCODER_MODEL = {
    "embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
}
_BERT_MODEL = _ENCODER_MODEL | {"pooler": "pooler.dense", "score": "classifier"}
_ROBERTA_MODEL = _ENCODER_MODEL | {"pooler": "classifier.dense", "score": "classifier.out_proj"}
_ENCODER_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
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
