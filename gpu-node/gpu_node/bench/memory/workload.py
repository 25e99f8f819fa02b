"""The requests of AdaptiveLLM's evaluation (§4.2): a thousand at once, of three mean lengths, with a limit."""

from __future__ import annotations

import random
from dataclasses import dataclass

from gpu_node.executors.predicted.lengths import SHAREGPT_OUTPUT, LogNormal

INPUT_TOKENS = (17, 20, 340)
"""Means of the paper's three samples: 17.02, 19.66, 340.48."""
DEVIATION = 0.8
"""Of a length from its mean, as a share of it; the paper does not say it."""
MAX_INPUT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class PressureRequest:
    """How long a prompt is, and its answer, which ends by itself or at its limit."""

    num_prompt_tokens: int
    num_output_tokens: int


def requests(num_requests: int, input_tokens: int, max_tokens: int, seed: int) -> list[PressureRequest]:
    """Log-normal prompts; answers as long as those of ShareGPT, cut off at the limit."""
    numbers = random.Random(seed)  # noqa: S311 - the same requests for every policy
    lengths = LogNormal.of_moments(input_tokens, DEVIATION * input_tokens)
    return [
        PressureRequest(
            min(lengths.tokens(_probability(numbers)), MAX_INPUT_TOKENS),
            min(SHAREGPT_OUTPUT.tokens(_probability(numbers)), max_tokens),
        )
        for _ in range(num_requests)
    ]


def _probability(numbers: random.Random) -> float:
    """Above 0 and below 1."""
    return (numbers.randrange(1 << 30) + 0.5) / (1 << 30)
