"""The configuration of a model in the ``config.json`` of a directory in Hugging Face layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.fields import MAX_EXPERTS, MAX_HEAD_DIM, MAX_LAYERS, Fields
from gpu_node.models.hf.hf_encoder_config import ENCODER_READERS
from gpu_node.models.hf.rope_scaling import read_rope
from shared.files.model_file import ModelFileError

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
_ESCAPED_SURROGATE = "\\ud"


def read_hf_config(directory: Path) -> ModelConfig:
    """The configuration in ``directory``; `ModelFileError` where it is incomplete or not supported.

    Keys that a file leaves out have the values that `transformers` gives them.
    """
    if not (directory / CONFIG_FILE).exists():
        raise ModelFileError(
            f"{directory} holds no {CONFIG_FILE}; a model is a GGUF file or a directory in Hugging Face layout"
        )
    values = read_json_values(directory / CONFIG_FILE)
    model_type = Fields(values.get, directory / CONFIG_FILE).text("model_type", default="")
    fields = Fields((_LEFT_OUT.get(model_type, {}) | values).get, directory / CONFIG_FILE)
    if model_type not in list(Family):
        raise fields.error(f"model_type {model_type!r} is not supported; {', '.join(map(repr, map(str, Family)))} are")
    if fields.section("quantization_config") is not None:
        raise fields.error("quantised weights (quantization_config) are not supported; GGUF files may be quantised")
    family = Family(model_type)
    eos_token_ids = fields.token_ids("eos_token_id")
    if (directory / GENERATION_FILE).is_file():  # chat models name the end of a turn here
        eos_token_ids |= _read_fields(directory / GENERATION_FILE).token_ids("eos_token_id")
    return _READERS.get(family, _rotary)(fields, family, eos_token_ids)


def read_json_values(path: Path) -> dict[str, object]:
    """A JSON file with a mapping at its top; `ModelFileError` where there is none."""
    values = _read_json(path)
    if not isinstance(values, dict):
        raise ModelFileError(f"{path}: expected a mapping at the top, found {type(values).__name__}")
    return values


def read_json_list(path: Path) -> list[dict[str, object]]:
    """A JSON file with a list of mappings at its top; `ModelFileError` where there is none."""
    values = _read_json(path)
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise ModelFileError(f"{path}: expected a list of mappings at the top")
    return values


def _read_json(path: Path) -> object:
    try:
        text = path.read_text("utf-8-sig")
        values: object = json.loads(text)
        if _ESCAPED_SURROGATE in text.lower():  # half a character, which could be neither looked for nor logged
            json.dumps(values, ensure_ascii=False).encode()
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read as JSON: {error}") from error
    return values


def _read_fields(path: Path) -> Fields:
    return Fields(read_json_values(path).get, path)


def _rotary(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    """Llama and its relatives."""
    _require(fields, fields.text("hidden_act", "silu") == "silu", "only hidden_act 'silu' is supported")
    for key in ("attention_bias", "mlp_bias"):
        _require(fields, not fields.flag(key, default=False), f"{key} is not supported")
    num_layers = fields.number("num_hidden_layers", int, most=MAX_LAYERS)
    hidden_size = fields.number("hidden_size", int)
    num_heads = fields.number("num_attention_heads", int)
    num_kv_heads = fields.number("num_key_value_heads", int, default=num_heads if family is Family.LLAMA else None)
    own_dim = 128 if family is Family.QWEN3 else hidden_size // num_heads
    head_dim = fields.number("head_dim", int, default=own_dim, most=MAX_HEAD_DIM)
    _require(fields, num_heads % num_kv_heads == 0, f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    mixture = family is Family.MIXTRAL
    num_experts = fields.number("num_local_experts", int, default=8, most=MAX_EXPERTS) if mixture else 0
    num_chosen = fields.number("num_experts_per_tok", int, default=2) if mixture else 0
    _require(fields, num_chosen <= num_experts, f"{num_chosen} of {num_experts} experts cannot be chosen")
    return ModelConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.number("intermediate_size", int),
        vocab_size=fields.number("vocab_size", int),
        context_length=fields.number("max_position_embeddings", int),
        norm_epsilon=fields.number("rms_norm_eps", float, default=1e-5 if mixture else 1e-6),
        tied_embedding=fields.flag("tie_word_embeddings", default=False),
        eos_token_ids=eos_token_ids,
        rope=read_rope(fields, head_dim, default_theta=1e6 if mixture else 10_000.0),
        windows=_windows(fields, family, num_layers),
        num_experts=num_experts,
        num_experts_per_token=num_chosen,
    )


def _windows(fields: Fields, family: Family, num_layers: int) -> tuple[int | None, ...]:
    """Llama has no windows, Mistral and Mixtral one for all layers, Qwen for those that ``layer_types`` names."""
    window = fields.optional_count("sliding_window")
    switched_on = fields.flag("use_sliding_window", default=family not in (Family.QWEN2, Family.QWEN3))
    if family is Family.LLAMA or window is None or not switched_on:
        return ()
    if family in (Family.MISTRAL, Family.MIXTRAL):
        return (window,) * num_layers
    types = fields.texts("layer_types")
    if types is None:
        first = fields.index("max_window_layers", default=28)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    windows = {"sliding_attention": window, "full_attention": None}
    _require(fields, len(types) == num_layers, f"layer_types has {len(types)} entries for {num_layers} layers")
    _require(fields, windows.keys() >= set(types), f"layer_types {sorted(set(types))} are not all supported")
    return tuple(windows[name] for name in types)


def _opt(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    hidden_size, num_heads = fields.number("hidden_size", int), fields.number("num_attention_heads", int)
    _require(
        fields, fields.text("activation_function", "relu") == "relu", "only activation_function 'relu' is supported"
    )
    projected = fields.number("word_embed_proj_dim", int, hidden_size) != hidden_size
    _require(fields, not projected, "projected embeddings (word_embed_proj_dim) are not supported")
    for key, wanted in _OPT_FLAGS.items():
        _require(fields, fields.flag(key, default=wanted) is wanted, f"{key} other than {wanted} is not supported")
    return ModelConfig(
        family=family,
        num_layers=fields.number("num_hidden_layers", int, most=MAX_LAYERS),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_head_dim(fields, hidden_size, num_heads),
        intermediate_size=fields.number("ffn_dim", int),
        vocab_size=fields.number("vocab_size", int),
        context_length=fields.number("max_position_embeddings", int),
        norm_epsilon=1e-5,
        tied_embedding=fields.flag("tie_word_embeddings", default=True),
        eos_token_ids=eos_token_ids,
    )


_OPT_FLAGS = {
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
}


def _gpt2(fields: Fields, family: Family, eos_token_ids: frozenset[int]) -> ModelConfig:
    hidden_size, num_heads = fields.number("n_embd", int), fields.number("n_head", int)
    activation = fields.text("activation_function", "gelu_new")
    _require(
        fields, activation in ("gelu_new", "gelu_pytorch_tanh"), f"activation_function {activation!r} is not supported"
    )
    _require(fields, fields.flag("scale_attn_weights", default=True), "scale_attn_weights false is not supported")
    by_layer = fields.flag("scale_attn_by_inverse_layer_idx", default=False)
    _require(fields, not by_layer, "scale_attn_by_inverse_layer_idx is not supported")
    return ModelConfig(
        family=family,
        num_layers=fields.number("n_layer", int, most=MAX_LAYERS),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_head_dim(fields, hidden_size, num_heads),
        intermediate_size=fields.number("n_inner", int, default=4 * hidden_size),
        vocab_size=fields.number("vocab_size", int),
        context_length=fields.number("n_positions", int),
        norm_epsilon=fields.number("layer_norm_epsilon", float, default=1e-5),
        tied_embedding=fields.flag("tie_word_embeddings", default=True),
        eos_token_ids=eos_token_ids,
    )


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    _require(fields, hidden_size % num_heads == 0, f"{hidden_size} columns cannot be shared by {num_heads} heads")
    return hidden_size // num_heads


def _require(fields: Fields, condition: bool, text: str) -> None:
    if not condition:
        raise fields.error(text)


_LEFT_OUT: Mapping[str, dict[str, object]] = {
    Family.MISTRAL: {"sliding_window": 4096},
    Family.QWEN2: {"sliding_window": 4096},
    Family.QWEN3: {"sliding_window": 4096},
}
"""What a key stands for that a file leaves out and, unlike most, may have as null: then there is no window."""

_READERS: Mapping[Family, Callable[[Fields, Family, frozenset[int]], ModelConfig]] = {
    Family.OPT: _opt,
    Family.GPT2: _gpt2,
    **ENCODER_READERS,
}
