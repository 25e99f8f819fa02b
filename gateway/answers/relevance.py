"""A score from 0 to 1 of the logits that a model gives."""

from __future__ import annotations

import math
import struct

from gateway.generation.generation import FLOAT_BYTES
from gateway.openai.errors.errors import generation_failed


def relevance(logits: bytes) -> float:
    """How likely a yes is. ``logits``: float32, little-endian, of no and yes, or of the one label of a classifier.

    The softmax over two logits is the logistic function of their difference. `ApiError` 500 for any other number of
    them, and where they say nothing (NaN).
    """
    numbers = struct.unpack(f"<{len(logits) // FLOAT_BYTES}f", logits)
    match numbers:
        case (label,):
            score = logistic(label)
        case (no, yes):
            score = logistic(yes - no)
        case _:
            raise generation_failed(f"{len(numbers)} logits are no score")
    if math.isnan(score):
        raise generation_failed("its logits are no numbers")
    return score


def logistic(value: float) -> float:
    """1 / (1 + e**-value), without an overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    power = math.exp(value)
    return power / (1.0 + power)
