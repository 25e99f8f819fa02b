"""Rules of values in the standard library alone, which pydantic checks like its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Of a number, both included, for `Annotated`."""

    ge: float
    le: float | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, Any]]) -> object:
        return handler(source) | {"ge": self.ge} | ({} if self.le is None else {"le": self.le})


@dataclass(frozen=True, slots=True)
class Matching:
    """What a text must look like, for `Annotated`."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, Any]]) -> object:
        return handler(source) | {"pattern": self.pattern}


STRICT: Any = {"extra": "forbid"}
"""Configuration of a standard dataclass for pydantic; as `shared.config.section.Section`."""
