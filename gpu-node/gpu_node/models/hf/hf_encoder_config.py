"""The configuration of an encoder in the ``config.json`` of a directory: BERT, RoBERTa, Nomic's, GTE's, ModernBERT.

Keys that a file leaves out have the values that `transformers` gives them, or the code beside the files of Nomic's and
GTE's. What would change the answer and is not done here is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.fields import MAX_HEAD_DIM, MAX_LAYERS, Fields
from gpu_node.models.hf.rope_scaling import check_pairs, read_rope, scaled_rope
from shared.files.encoder import NOMIC_TRAINED_POSITIONS, default_padding, num_skipped_positions, trained_positions

_NOMIC_FLAGS: Final = {
    "qkv_proj_bias": (True, False),
    "mlp_fc1_bias": (True, False),
    "mlp_fc2_bias": (True, False),
    "rotary_emb_interleaved": (False, False),
    "prenorm": (False, False),
    "parallel_block": (False, False),
    "use_rms_norm": (False, False),
    "causal": (False, False),
    "scale_attn_weights": (True, True),
    "scale_attn_by_inverse_layer_idx": (False, False),
}
"""Each: what it is where a file leaves it out, and what is supported."""
_MODERN_FLAGS: Final = ("norm_bias", "attention_bias", "mlp_bias")
_THETA: Final = {Family.NOMIC_BERT: 1_000.0, Family.NEW: 10_000.0, Family.GTE: 160_000.0}


def _bert(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    """BERT, RoBERTa and XLM-RoBERTa."""
    _require_text(fields, "hidden_act", "gelu")
    _require_text(fields, "position_embedding_type", "absolute")
    for key in ("is_decoder", "add_cross_attention"):
        _require_flag(fields, key)
    num_skipped = num_skipped_positions(family, fields.index("pad_token_id", default=default_padding(family)))
    num_positions = fields.number("max_position_embeddings", int, default=512)
    if num_positions <= num_skipped:
        raise fields.error(f"max_position_embeddings {num_positions} leaves no position for a token")
    return _config(
        fields,
        family,
        eos_token_ids,
        context_length=num_positions - num_skipped,
        norm_epsilon=fields.number("layer_norm_eps", float, default=1e-12),
        num_segments=fields.number("type_vocab_size", int, default=2),
        num_skipped_positions=num_skipped,
    )


def _nomic(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    """As `transformers` writes it, or with the keys of a GPT-2 as Nomic's own files have them."""
    if not fields.has("n_embd"):
        _require_text(fields, "hidden_act", "silu")
        return _turned(fields, family, eos_token_ids, num_segments=fields.index("type_vocab_size", default=2))
    _require_text(fields, "activation_function", "swiglu", default="gelu")
    for key, (default, wanted) in _NOMIC_FLAGS.items():
        if fields.flag(key, default=default) is not wanted:
            raise fields.error(f"{key} other than {str(wanted).lower()} is not supported")
    if fields.index("num_experts", default=0) and fields.index("moe_every_n_layers", default=0):
        raise fields.error("mixtures of experts (num_experts) are not supported in encoders")
    if fields.number("rotary_emb_fraction", float) != 1.0:
        raise fields.error("rotary embedding of a part of a head (rotary_emb_fraction) is not supported")
    if fields.has("rotary_emb_scale_base"):
        raise fields.error("rotary_emb_scale_base is not supported")
    hidden_size, num_heads = fields.number("n_embd", int), fields.number("n_head", int)
    multiple = fields.number("pad_vocab_size_multiple", int, default=1)
    head_dim = _head_dim(fields, hidden_size, num_heads)
    check_pairs(fields, head_dim)
    num_trained = fields.number("max_trained_positions", int, default=NOMIC_TRAINED_POSITIONS)
    return ModelConfig(
        family=family,
        num_layers=fields.number("n_layer", int, most=MAX_LAYERS),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=head_dim,
        intermediate_size=fields.number("n_inner", int, default=4 * hidden_size),
        vocab_size=-(-fields.number("vocab_size", int) // multiple) * multiple,
        context_length=trained_positions(fields.number("n_positions", int), num_trained),
        norm_epsilon=fields.number("layer_norm_epsilon", float, default=1e-5),
        tied_embedding=True,
        eos_token_ids=eos_token_ids,
        rope=Rope(fields.number("rotary_emb_base", float, default=10_000.0)),
        num_segments=fields.index("type_vocab_size", default=2),
    )


def _gte(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    _require_text(fields, "hidden_act", "gelu")
    _require_text(fields, "position_embedding_type", "rope")
    _require_text(fields, "layer_norm_type", "layer_norm")
    _require_flag(fields, "logn_attention_scale")
    if not fields.flag("pack_qkv", default=True):
        raise fields.error("pack_qkv false is not supported")
    return _turned(fields, family, eos_token_ids, num_segments=fields.index("type_vocab_size", default=1))


def _turned(fields: Fields, family: Family, eos_token_ids: frozenset[int], *, num_segments: int) -> ModelConfig:
    config = _config(
        fields,
        family,
        eos_token_ids,
        context_length=fields.number("max_position_embeddings", int),
        norm_epsilon=fields.number("layer_norm_eps", float, default=1e-12),
        num_segments=num_segments,
        rope=_rope(fields, _turned_head_dim(fields), _THETA[family]),
    )
    if fields.number("head_dim", int, default=config.head_dim) != config.head_dim:
        raise fields.error("head_dim other than hidden_size / num_attention_heads is not supported")
    return config


def _rope(fields: Fields, head_dim: int, default_theta: float) -> Rope:
    scaling = fields.section("rope_scaling")
    if scaling is None or scaling.text("type", default="") != "ntk":
        return read_rope(fields, head_dim, default_theta)
    if scaling.has("mixed_b"):
        raise fields.error("mixed scaling of a rotary embedding (mixed_b) is not supported")
    # by a larger base, and all pairs by a little (https://kexue.fm/archives/9706, equation 6)
    theta, factor = fields.number("rope_theta", float, default=default_theta), scaling.number("factor", float)
    return Rope(theta * factor, (factor ** (2 / head_dim),) * (head_dim // 2))


def _modern(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    _require_text(fields, "hidden_activation", "gelu")
    for key in _MODERN_FLAGS:
        _require_flag(fields, key)
    if fields.section("rope_scaling") is not None:
        raise fields.error("scaled rotary embeddings (rope_scaling) are not supported in a ModernBERT")
    num_layers, head_dim = fields.number("num_hidden_layers", int, most=MAX_LAYERS), _turned_head_dim(fields)
    ropes = [
        _modern_rope(fields, head_dim, kind, fields.number(key, float, default=theta))
        for kind, key, theta in (
            ("full_attention", "global_rope_theta", 160_000.0),
            ("sliding_attention", "local_rope_theta", 10_000.0),
        )
    ]
    return _config(
        fields,
        family,
        eos_token_ids,
        context_length=fields.number("max_position_embeddings", int, default=8192),
        norm_epsilon=fields.number("norm_eps", float, default=1e-5),
        rope=ropes[0],
        windows=_modern_windows(fields, num_layers),
        window_rope=ropes[1],
    )


def _modern_rope(fields: Fields, head_dim: int, kind: str, theta: float) -> Rope:
    sections = fields.section("rope_parameters")
    section = None if sections is None else sections.section(kind)
    rope = Rope(theta) if section is None else scaled_rope(section, head_dim, theta)
    if rope.factors:
        raise fields.error(f"scaled rotary embeddings (rope_parameters, {kind}) are not supported in a ModernBERT")
    return rope


def _modern_windows(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    """``local_attention`` is of both sides together: a token sees half of it before and half of it behind itself."""
    window = fields.number("local_attention", int, default=128) // 2 + 1
    types = fields.texts("layer_types")
    if types is None:
        every = fields.number("global_attn_every_n_layers", int, default=3)
        return tuple(window if layer % every else None for layer in range(num_layers))
    windows = {"sliding_attention": window, "full_attention": None}
    if len(types) != num_layers:
        raise fields.error(f"layer_types has {len(types)} entries for {num_layers} layers")
    if not windows.keys() >= set(types):
        raise fields.error(f"layer_types {sorted(set(types))} are not all supported")
    return tuple(windows[name] for name in types)


def _config(
    fields: Fields,
    family: Family,
    eos_token_ids: frozenset[int],
    *,
    context_length: int,
    norm_epsilon: float,
    num_segments: int = 0,
    num_skipped_positions: int = 0,
    rope: Rope | None = None,
    windows: tuple[int | None, ...] = (),
    window_rope: Rope | None = None,
) -> ModelConfig:
    """With the sizes that all encoders of `transformers` name alike."""
    num_heads = fields.number("num_attention_heads", int)
    return ModelConfig(
        family=family,
        num_layers=fields.number("num_hidden_layers", int, most=MAX_LAYERS),
        hidden_size=fields.number("hidden_size", int),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_fields_head_dim(fields),
        intermediate_size=fields.number("intermediate_size", int),
        vocab_size=fields.number("vocab_size", int),
        context_length=context_length,
        norm_epsilon=norm_epsilon,
        tied_embedding=True,
        eos_token_ids=eos_token_ids,
        rope=rope,
        windows=windows,
        window_rope=window_rope,
        num_segments=num_segments,
        num_skipped_positions=num_skipped_positions,
    )


def _fields_head_dim(fields: Fields) -> int:
    return _head_dim(fields, fields.number("hidden_size", int), fields.number("num_attention_heads", int))


def _turned_head_dim(fields: Fields) -> int:
    head_dim = _fields_head_dim(fields)
    check_pairs(fields, head_dim)
    if head_dim > MAX_HEAD_DIM:
        raise fields.error(f"a head of {head_dim} numbers is larger than {MAX_HEAD_DIM}")
    return head_dim


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    if hidden_size % num_heads:
        raise fields.error(f"{hidden_size} columns cannot be shared by {num_heads} heads")
    return hidden_size // num_heads


def _require_text(fields: Fields, key: str, wanted: str, default: str | None = None) -> None:
    found = fields.text(key, default=wanted if default is None else default)
    if found != wanted:
        raise fields.error(f"{key} {found!r} is not supported; {wanted!r} is")


def _require_flag(fields: Fields, key: str) -> None:
    if fields.flag(key, default=False):
        raise fields.error(f"{key} is not supported")


ENCODER_READERS: Mapping[Family, Callable[[Fields, Family, frozenset[int]], ModelConfig]] = {
    **dict.fromkeys((Family.BERT, Family.ROBERTA, Family.XLM_ROBERTA), _bert),
    Family.NOMIC_BERT: _nomic,
    Family.NEW: _gte,
    Family.GTE: _gte,
    Family.MODERN_BERT: _modern,
}
