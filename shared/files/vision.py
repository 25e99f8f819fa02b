"""Models that read images: what ``config.json`` says of their two parts, the one for text and the one for vision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shared.files.model_file import ModelFileError

CONFIG_FILE = "config.json"
_TEXT, _VISION = "text_config", "vision_config"


def text_values(values: Mapping[str, object]) -> dict[str, object]:
    """The fields of the part for text, which models of text alone have at the top; what it leaves out is of the top."""
    text = values.get(_TEXT)
    return {**values, **text} if isinstance(text, dict) else dict(values)


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
