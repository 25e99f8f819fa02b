"""Named values from a model's files, JSON or GGUF metadata, taken by type; what cannot be used names file and key."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from shared.files.model_file import ModelFileError

FieldKind = TypeVar("FieldKind", str, int, bool, dict, list)  # type: ignore[type-arg]  # JSON's own types

_NAMES = {str: "text", int: "a whole number", bool: "true or false", dict: "a mapping", list: "a list"}


class ModelFields:
    """One mapping of a file. Keys that are absent and keys that are null are the same."""

    def __init__(self, values: Mapping[str, object], path: Path) -> None:
        self.values = values
        self.path = path

    def error(self, text: str) -> ModelFileError:
        """An error about this file."""
        return ModelFileError(f"{self.path}: {text}")

    def get(self, key: str, kind: type[FieldKind]) -> FieldKind | None:
        """The value, or None where there is none; `ModelFileError` for a value of another type."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected {_NAMES[kind]}")
        return value

    def need(self, key: str, kind: type[FieldKind]) -> FieldKind:
        """The value; `ModelFileError` where there is none."""
        value = self.get(key, kind)
        if value is None:
            raise self.error(f"{key} is missing")
        return value

    def section(self, key: str) -> ModelFields | None:
        """The mapping under ``key``, or None where there is none."""
        values = self.get(key, dict)
        return None if values is None else ModelFields(values, self.path)

    def sections(self, key: str) -> list[ModelFields]:
        """The list of mappings under ``key``; empty where there is none."""
        items = self.get(key, list) or []
        if not all(isinstance(item, dict) for item in items):
            raise self.error(f"{key} is expected to be a list of mappings")
        return [ModelFields(item, self.path) for item in items]

    def steps(self, key: str, nested: str) -> list[ModelFields]:
        """A component of a tokenizer as the list of its steps: nothing, one step, or a ``Sequence`` of them."""
        component = self.section(key)
        if component is None:
            return []
        return component.sections(nested) if component.get("type", str) == "Sequence" else [component]

    def token_ids(self, key: str) -> list[int]:
        """Token ids, written as one number or as a list; empty where there is none."""
        value = self.values.get(key)
        found: list[object] = value if isinstance(value, list) else [] if value is None else [value]
        ids = [token for token in found if isinstance(token, int) and not isinstance(token, bool) and token >= 0]
        if len(ids) < len(found):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a token id or a list of them")
        return ids
