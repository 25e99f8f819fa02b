"""Typed look-ups in what a model file says of itself; whatever cannot be used is an error naming file and key."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shared.files.model_file import ModelFileError

Number = TypeVar("Number", int, float)

MAX_WHOLE = (1 << 31) - 1
"""No model counts further, and kernels index with 32 bits."""
MAX_LAYERS = 1024
"""The deepest models have an eighth of it; a program is made layer by layer."""
MAX_EXPERTS = 4096
"""Of a layer; each may be a tensor of its own."""
MAX_HEAD_DIM = 4096
"""Numbers of a head; heads of 256 are large. What turns each pair of them is written down."""


class Fields:
    """Keys and values of one file. A value of the wrong type or range is a `ModelFileError`."""

    def __init__(self, lookup: Callable[[str], object], path: Path) -> None:
        self._lookup = lookup
        self._path = path

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._path

    def error(self, text: str) -> ModelFileError:
        """An error about this file."""
        return ModelFileError(f"{self._path}: {text}")

    def has(self, key: str) -> bool:
        """Whether there is such a value, of any type."""
        return self._lookup(key) is not None

    def text(self, key: str, default: str) -> str:
        """A string, or ``default`` where there is none."""
        value = self._lookup(key)
        if not isinstance(value, str | None):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected text")
        return default if value is None else value

    def number(self, key: str, kind: type[Number], default: Number | None = None, *, most: int = MAX_WHOLE) -> Number:
        """A number above 0, or ``default`` where there is none; whole ones are at most ``most``.

        JSON may write a float as an integer.
        """
        value = self._lookup(key)
        value = default if value is None else value  # one that was computed from other values may be wrong as well
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if kind is float and is_whole:
            value = self._as_float(key, value)
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a positive {kind.__name__}")
        if kind is int and value > most:
            raise self.error(f"{key} is {reprlib.repr(value)}, expected {most} at most")
        return value

    def _as_float(self, key: str, value: Any) -> float:
        try:
            return float(value)
        except OverflowError as error:  # JSON has integers of any size
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a positive float") from error

    def optional_count(self, key: str) -> int | None:
        """A whole number above 0, or None where there is none."""
        return None if self._lookup(key) is None else self.number(key, int)

    def optional_index(self, key: str) -> int | None:
        """A whole number from 0 up, or None where there is none."""
        return None if self._lookup(key) is None else self.index(key, default=0)

    def index(self, key: str, default: int) -> int:
        """A whole number from 0 up, or ``default`` where there is none."""
        value = self._lookup(key)
        return default if value is None else 0 if value == 0 else self.number(key, int)

    def flag(self, key: str, default: bool) -> bool:
        """A truth value, or ``default`` where there is none."""
        value = self._lookup(key)
        if not isinstance(value, bool | None):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected true or false")
        return default if value is None else value

    def token_ids(self, key: str) -> frozenset[int]:
        """Token ids, written as one number or as a list; empty where there is none."""
        value = self._lookup(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(token, bool) or not isinstance(token, int) or token < 0 for token in ids):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a token id")
        return frozenset(ids)

    def texts(self, key: str) -> list[str] | None:
        """A list of strings, or None where there is none."""
        value = self._lookup(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a list of texts")
        return value

    def section(self, key: str) -> Fields | None:
        """The mapping under ``key``, or None where there is none."""
        value = self._lookup(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"{key} is {reprlib.repr(value)}, expected a mapping")
        return Fields(value.get, self._path)
