"""Lengths of prompts and answers, drawn from distributions that were fitted to real ones.

Fitted to the 58,338 conversations of ShareGPT with at most 4,096 tokens (58,787 in all; the lengths that NanoFlow,
OSDI'25, publishes with its code), by expectation maximisation on the logarithms; prompts and answers are nearly
independent (correlation of the logarithms 0.10). Largest distance between the distribution functions: 0.005 for
prompts, 0.017 for answers. Means: 249 and 322 tokens; of what is drawn here (answers are cut), 231 and 319.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from services.simulator.workloads.request import DEFAULT_LIMIT_TOKENS

MAX_TOTAL_TOKENS = 4096
"""Of prompt and answer together, as in the conversations that were fitted."""


@dataclass(frozen=True, slots=True)
class LogNormals:
    """A mixture: each of ``(weight, mean, std)`` describes the logarithm of a length; weights add up to 1."""

    parts: tuple[tuple[float, float, float], ...]

    def draw(self, random: Random) -> int:
        """A length in tokens, at least 1."""
        (_, mean, std) = random.choices(self.parts, [weight for weight, _, _ in self.parts])[0]
        return max(1, round(math.exp(random.gauss(mean, std))))


SHAREGPT_PROMPT = LogNormals(((0.2597, 2.7809, 0.4802), (0.6195, 3.8781, 1.3859), (0.1208, 7.0331, 0.6561)))
SHAREGPT_ANSWER = LogNormals(((0.2773, 4.0500, 1.2469), (0.7227, 5.8398, 0.5702)))


def draw_sharegpt(random: Random) -> tuple[int, int]:
    """Tokens of a prompt and of its answer."""
    while True:
        lengths = SHAREGPT_PROMPT.draw(random), _answer(random)
        if sum(lengths) <= MAX_TOTAL_TOKENS:
            return lengths


def draw_mega(random: Random) -> tuple[int, int]:
    """A prompt of thousands of tokens that leaves room for its answer (QLM's workload W_C)."""
    while True:
        lengths = random.randint(2_500, 3_900), _answer(random)
        if sum(lengths) <= MAX_TOTAL_TOKENS:
            return lengths


def draw_answer(random: Random, prompt_tokens: int, least_tokens: int = 1) -> int:
    """Tokens of an answer as above, given those of its prompt, and that it has at least so many."""
    most_tokens = min(DEFAULT_LIMIT_TOKENS, MAX_TOTAL_TOKENS - prompt_tokens)
    assert 1 <= least_tokens <= most_tokens, "no such answer is ever drawn"
    while True:
        answer_tokens = _answer(random)
        if least_tokens <= answer_tokens <= most_tokens:
            return answer_tokens


def _answer(random: Random) -> int:
    """Cut at what clients allow: a limit that hangs on the length would tell what cannot be known."""
    return min(DEFAULT_LIMIT_TOKENS, SHAREGPT_ANSWER.draw(random))
