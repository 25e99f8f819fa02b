"""The JSON files of a model directory in Hugging Face layout; what cannot be used is an error naming file and key."""

from __future__ import annotations

import json
from pathlib import Path

from shared.files.model_file import ModelFileError
from shared.vocabulary.model_fields import ModelFields

_ESCAPED_SURROGATE = "\\ud"


def read_json(path: Path, remedy: str) -> ModelFields:
    """A JSON file with a mapping at its top; `ModelFileError` with the ``remedy`` where there is none."""
    if not path.is_file():
        raise ModelFileError(f"{path} is missing; {remedy}")
    try:
        text = path.read_text("utf-8-sig")
        values = json.loads(text)
        if _ESCAPED_SURROGATE in text.lower():  # half a character, which could be neither encoded nor logged
            json.dumps(values, ensure_ascii=False).encode()
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read as JSON ({error}); fetch it again") from error
    if not isinstance(values, dict):
        raise ModelFileError(f"{path}: expected a mapping at the top, found {type(values).__name__}")
    return ModelFields(values, path)
