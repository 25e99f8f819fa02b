"""What all objects of a request have in common: unknown fields are refused, null means not given, types are strict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import ErrorDetails

MAX_FIELD_CHARACTERS = 64  # of an unknown field, as it is told to its client


class UnsupportedFieldError(Exception):
    """A field that Treadle does not have, with a value that asks for something; ``instead``: the one that it has.

    No ValueError, nor are the next ones: pydantic would catch it and forget the field.
    """

    def __init__(self, field: str, instead: str = "") -> None:
        super().__init__(field)
        self.field = field
        self.instead = instead


class MissingFieldError(Exception):
    """A field that has to be there because of what others say."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


class FieldConflictError(Exception):
    """A field whose value is fine by itself, but not beside the others."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


class ApiObject(BaseModel):
    """An object in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """Of the unknown fields, only the first is left: each would be made an error, and one is told."""
        if not isinstance(data, dict):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        known = known_names(cls)
        if len(given.keys() - known) > 1:
            first = next(name for name in given if name not in known)
            return {name: value for name, value in given.items() if name in known or name == first}
        return given


@cache
def known_names(kind: type[ApiObject]) -> frozenset[str]:
    """As clients write them."""
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


def path_of(loc: Sequence[int | str]) -> str | None:
    """``("messages", 0, "role")`` as ``messages[0].role``, the way OpenAI writes it."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{_clipped(part)}"
    return path.removeprefix(".") or None


def text_of(problem: ErrorDetails) -> str:
    """What pydantic found, without what it adds to our own words, nor the names of our classes."""
    if problem["type"] in ("model_type", "model_attributes_type"):
        return "it is no JSON object"
    return problem["msg"].removeprefix("Value error, ")


def _clipped(name: str) -> str:
    """A client's own word: not sent back, nor written to logs, in megabytes."""
    return name if len(name) <= MAX_FIELD_CHARACTERS else f"{name[:MAX_FIELD_CHARACTERS]}…"


def without_inert(
    data: Mapping[str, Any], inert: Mapping[str, Sequence[Any]], instead: Mapping[str, str]
) -> dict[str, Any]:
    """A body without the fields that Treadle does not have; `UnsupportedFieldError` for one that asks for something.

    ``inert``: these fields, each with the values that ask for nothing. ``instead``: the fields that do what they did.
    """
    for name in data.keys() & inert.keys():
        if data[name] is not None and not _is_among(data[name], inert[name]):
            raise UnsupportedFieldError(name, instead.get(name, ""))
    return {name: value for name, value in data.items() if name not in inert}


def _is_among(value: Any, values: Sequence[Any]) -> bool:
    # bool and number apart: ``echo: 0`` is a mistake, ``echo: false`` asks for nothing
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)
