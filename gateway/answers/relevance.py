"""A score from 0 to 1 of the logits that a model gives."""

from __future__ import annotations

import math
import struct

from gateway.generation.generation import FLOAT_BYTES
from gateway.openai.errors import ApiError


def relevance(logits: bytes) -> float:
    """How likely a yes is. ``logits``: float32, little-endian, of no and yes, or of the one label of a classifier.

    The softmax over two logits is the logistic function of their difference. `ApiError` 500 for any other number.
    """
    numbers = struct.unpack(f"<{len(logits) // FLOAT_BYTES}f", logits)
    match numbers:
        case (label,):
            return logistic(label)
        case (no, yes):
            return logistic(yes - no)
    message = f"generation failed on the node: {len(numbers)} logits are no score"
    raise ApiError(500, message, code="generation_failed")


def logistic(value: float) -> float:
    """1 / (1 + e**-value), without an overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    power = math.exp(value)
    return power / (1.0 + power)
