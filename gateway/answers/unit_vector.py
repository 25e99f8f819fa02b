"""An embedding as clients get it: of length 1, and of as many numbers as they ask for."""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64encode

from gateway.openai.errors.errors import generation_failed


def unit_vector(numbers: bytes, dimensions: int | None = None) -> list[float]:
    """``numbers`` float32, little-endian, over their length; the first ``dimensions`` alone, over theirs.

    Numbers that are all 0 stay so. `ApiError` 500 for what is no number, or no end of one: JSON has neither.
    """
    values = _floats(numbers)
    kept = values[:dimensions]
    length = math.hypot(*kept)
    if not math.isfinite(length):
        raise generation_failed("its embedding has numbers that are none")
    return [value / length for value in kept] if length else list(kept)


def base64_of(values: list[float]) -> str:
    """Their float32, little-endian, in base64."""
    return b64encode(_little_endian(array("f", values)).tobytes()).decode()


def _floats(numbers: bytes) -> array[float]:
    values = array("f")
    values.frombytes(numbers)
    return _little_endian(values)


def _little_endian(values: array[float]) -> array[float]:
    if sys.byteorder == "big":
        values.byteswap()
    return values
