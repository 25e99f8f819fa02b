"""What all objects of a request have in common: unknown fields are refused, null means not given, types are strict."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class UnsupportedFieldError(Exception):
    """A field that Treadle does not have yet, with a value that asks for something.

    No ValueError, nor is the next one: pydantic would catch it and forget the field.
    """

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


class FieldConflictError(Exception):
    """A field whose value is fine by itself, but not beside the others."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


def _drop_nulls(data: Any) -> Any:
    return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class Part(BaseModel):
    """An object in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    _without_nulls = model_validator(mode="before")(_drop_nulls)
