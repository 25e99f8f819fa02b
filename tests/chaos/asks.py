"""What clients ask for: few questions with known answers, so that every answer under faults has one to compare with."""

from __future__ import annotations

from random import Random

from tests.chaos.history import Ask
from tests.chaos.members import REAL, TINY

MARKER = "zq7-marker-of-a-prompt-that-must-be-in-no-log"
_PROMPTS = {
    REAL: ["Once upon a time, in a small village by the sea,", f"{MARKER}: a list of the planets: Mercury,"],
    TINY: ["hello", f"{MARKER} hello hello"],
}
LONGEST = {REAL: 80, TINY: 320}
"""Tokens of the longest answers: a second or two of a node, so that faults meet them."""
_SAMPLING = [(0.0, 0), (1.0, 11)]
CANCEL_SHARE = 0.12
WHOLE_SHARE = 0.3
TEXT_SHARE = 0.25
"""Of answers of which only the text is seen: those with logprobs take another way through the gateway."""


def longest_asks() -> list[Ask]:
    """One of each key, as long as they come: the undisturbed run."""
    return [
        Ask(f"{model}/{number}/{temperature:g}/{seed}", model, prompt, LONGEST[model], temperature, seed)
        for model, prompts in _PROMPTS.items()
        for number, prompt in enumerate(prompts)
        for temperature, seed in _SAMPLING
    ]


def draw_ask(random: Random) -> Ask:
    """One of them, of any length, streamed or whole, perhaps with a client who leaves."""
    ask = random.choice(longest_asks())
    streams = random.random() >= WHOLE_SHARE
    return Ask(
        ask.key,
        ask.model,
        ask.prompt,
        random.randint(ask.max_tokens // 4, ask.max_tokens),
        ask.temperature,
        ask.seed,
        streams=streams,
        wants_tokens=random.random() >= TEXT_SHARE,
        cancel_after=random.randint(0, 12) if random.random() < CANCEL_SHARE else None,
    )
