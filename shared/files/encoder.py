"""Encoders, BERT and its kin, as gateways and nodes have to see them alike: which models they are, how long their texts
may be, and what they cannot be served for.

All tokens of a text see each other, so a text is computed in one step, and nothing of it serves another text. What it
gives is no token that a next one could follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shared.config.engines.engine import EngineOptions, ModelSpec

_COUNTED_BEHIND_PADDING: Final = frozenset({"roberta", "xlm-roberta"})
_NOMIC: Final = "nomic_bert"
ENCODER_TYPES: Final = _COUNTED_BEHIND_PADDING | {"bert", _NOMIC, "new", "gte", "modernbert"}
"""Their ``model_type``; ``new`` is what the code beside GTE's files calls them."""
_ENCODER_ARCHITECTURES: Final = frozenset({"bert", "nomic-bert", "modern-bert"})
"""What GGUF files call them (``general.architecture``); RoBERTa's kin are ``bert`` there, too."""
NOMIC_TRAINED_POSITIONS: Final = 2048
"""Where a file of Nomic's does not say it."""
WHOLE_TEXT_TOKENS: Final = 512
"""For which a step of an encoder has room at least: most encoders have no more positions."""
_ANSWER_TOKENS: Final = 1
"""What an embedding or a score counts as, in the length of a request; it has no position."""


def is_encoder_type(model_type: object) -> bool:
    """Whether this is what their files call a model whose tokens see those behind them."""
    return isinstance(model_type, str) and model_type in ENCODER_TYPES


def is_encoder_file(metadata: Mapping[str, object]) -> bool:
    """The same of the metadata of a GGUF file."""
    return metadata.get("general.architecture") in _ENCODER_ARCHITECTURES


def default_padding(model_type: str) -> int:
    """The id of the padding token, where ``config.json`` does not say it, as `transformers` has it."""
    return 1 if model_type in _COUNTED_BEHIND_PADDING else 0


def num_skipped_positions(model_type: str, padding_id: int) -> int:
    """Rows of the table of positions before that of a text's first token: RoBERTa counts from behind its padding's."""
    return padding_id + 1 if model_type in _COUNTED_BEHIND_PADDING else 0


def text_positions(config: Mapping[str, object], num_positions: int) -> int:
    """Tokens of the longest text, by an encoder's ``config.json`` and the rows of its table of positions, or how many
    positions there are where those are rotary."""
    model_type, padding_id = str(config.get("model_type")), config.get("pad_token_id")
    if model_type == _NOMIC and has_gpt2_keys(config):
        trained = config.get("max_trained_positions")
        return trained_positions(num_positions, trained if isinstance(trained, int) else NOMIC_TRAINED_POSITIONS)
    if not isinstance(padding_id, int):
        padding_id = default_padding(model_type)
    return num_positions - num_skipped_positions(model_type, padding_id)


def has_gpt2_keys(config: Mapping[str, object]) -> bool:
    """Whether a ``config.json`` names its sizes as GPT-2 does (``n_embd``), which Nomic's own files do, too."""
    model_type = config.get("model_type")
    return model_type == "gpt2" or (model_type == _NOMIC and config.get("n_embd") is not None)


def trained_positions(num_positions: int, num_trained: int) -> int:
    """Of Nomic's own files: for longer texts than it was trained with, the code beside them may stretch the rotary
    embedding by the length of the text."""
    return min(num_positions, num_trained)


def max_length(num_positions: int) -> int:
    """Of a request whose text may have so many tokens."""
    return num_positions + _ANSWER_TOKENS


def step_rows(options: EngineOptions, *, is_encoder: bool) -> int:
    """Tokens that a step of a model may have. ``step_tokens`` keeps steps short for those who wait for a next token;
    none does beside an encoder's, so there a whole text has room, whatever it says."""
    return max(options.step_tokens, WHOLE_TEXT_TOKENS) if is_encoder else options.step_tokens


def own_step_tokens(options: EngineOptions, *, is_encoder: bool) -> int:
    """The same as nodes tell it of a model: 0 where it is what they tell of themselves (`NodeFacts.step_tokens`)."""
    rows = step_rows(options, is_encoder=is_encoder)
    return rows if rows != options.step_tokens else 0


def step_length(options: EngineOptions) -> int:
    """Of a request to an encoder whose text fits into one step."""
    return step_rows(options, is_encoder=True) + _ANSWER_TOKENS


def encoder_task_problem(spec: ModelSpec) -> str:
    """Why no engine can serve an encoder as ``spec`` asks, and what to set; ``""`` where one can."""
    if spec.task == "generate":
        why = "it is an encoder, whose tokens see those behind them, and writes no text"
        others = "task: score for one that judges pairs of texts, or task: classify for one with labels"
        return f"model {spec.name!r}: {why}; set task: embed, {others}"
    if spec.adapters:
        return f"model {spec.name!r}: it is an encoder, and those have no adapters here; leave adapters out"
    return ""


def encoder_problem(spec: ModelSpec, options: EngineOptions) -> str:
    """Likewise of Treadle's own engine with these options."""
    if problem := encoder_task_problem(spec):
        return problem
    rows, longest = step_rows(options, is_encoder=True), step_length(options)
    if spec.max_model_len is not None and spec.max_model_len > longest:
        return (
            f"model {spec.name!r}: max_model_len is {spec.max_model_len}, but it is an encoder, whose texts are "
            f"computed in one step each, of {rows} tokens at most; set engine.step_tokens to "
            f"{spec.max_model_len - _ANSWER_TOKENS} at least, or max_model_len to {longest} at most"
        )
    if options.offload != "off":
        return (
            f"model {spec.name!r}: it is an encoder, whose attention does not run on other engines; set "
            "engine.offload: off, or serve it in a cluster of its own"
        )
    return ""
