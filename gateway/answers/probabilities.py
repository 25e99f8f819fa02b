"""How likely each label of a classifier is, of the logits that a model gives."""

from __future__ import annotations

import math
import struct

from gateway.answers.relevance import logistic
from gateway.generation.generation import FLOAT_BYTES
from gateway.openai.errors.errors import generation_failed
from shared.files.classifier import ClassLabels


def probabilities(logits: bytes, labels: ClassLabels) -> list[float]:
    """A number from 0 to 1 of each label, in their order. ``logits``: float32, little-endian.

    The softmax where one of the labels is right, else the logistic function of each. `ApiError` 500 for another number
    of logits, and where they say nothing (NaN, infinity).
    """
    numbers = struct.unpack(f"<{len(logits) // FLOAT_BYTES}f", logits)
    if len(numbers) != len(labels.names):
        raise generation_failed(f"{len(numbers)} logits are not of {len(labels.names)} labels")
    if not all(map(math.isfinite, numbers)):
        raise generation_failed("its logits are no numbers")
    if not labels.is_exclusive:
        return [logistic(number) for number in numbers]
    most = max(numbers)
    powers = [math.exp(number - most) for number in numbers]
    total = math.fsum(powers)
    return [power / total for power in powers]
