"""Models that read images: what ``config.json`` says of their two parts, the one for text and the one for vision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shared.files.model_file import ModelFileError

CONFIG_FILE = "config.json"
_TEXT, _VISION = "text_config", "vision_config"


_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
    },
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
    },
}
"""What `transformers` takes where such a part says nothing, as those of LLaVA 1.5 and Gemma 3 do; by its kind."""


def text_values(values: Mapping[str, object]) -> dict[str, object]:
    """The fields of the part for text, which models of text alone have at the top; what it leaves out is of the top."""
    text = values.get(_TEXT)
    if not isinstance(text, dict):
        return dict(values)
    kind = text.get("model_type")
    return {**(_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}), **values, **text}


def has_vision(path: Path) -> bool:
    """Whether the directory at ``path`` is of a model with a vision part; `ModelFileError` where it cannot be read."""
    file = path / CONFIG_FILE
    if not file.is_file():
        return False
    try:
        values = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} cannot be read as JSON: {error}") from error
    return isinstance(values, dict) and isinstance(values.get(_VISION), dict)
