"""The trace of the live comparison: batch work for two models, there at once, and interactive requests all along.

Prompts are questions to a real model, which ends its answers itself; so nobody knows how long they will be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

TOPICS = ("sea", "bread", "bees", "moon", "glass", "rivers", "chess", "volcanoes", "paper", "rain", "ants", "sleep")
QUESTIONS = (
    "What is meant by {topic}? Answer in one sentence.",
    "Explain {topic} to a child.",
    "Write a short story about {topic}.",
    "List five facts about {topic}.",
    "Name three words that go with {topic}.",
    "Describe the history of {topic} in detail, from the beginning until today.",
)
MAX_TOKENS = 192  # of an answer; a third of the answers would go on
BATCH, INTERACTIVE = "batch-1", "interactive"  # kinds of promise
HOT_SHARE = 0.75  # of the batch requests go to the first model, the others to the last one


@dataclass(frozen=True)
class LiveRequest:
    """One chat request. ``number`` names it in every run of the trace."""

    number: int
    arrival_s: float
    model: str
    slo: str
    prompt: str
    max_tokens: int = MAX_TOKENS


def live_trace(models: Sequence[str], num_batch: int, rate: float, seed: int) -> Iterator[LiveRequest]:
    """``num_batch`` requests at once, then interactive ones at ``rate`` a second (Poisson), in order of arrival.

    These have no end.
    """
    rng = random.Random(seed)
    asks = [question.format(topic=topic) for question in QUESTIONS for topic in TOPICS]
    rng.shuffle(asks)
    arrival_s = 0.0
    for number in count():
        is_batch = number < num_batch
        if is_batch:
            model = models[0] if rng.random() < HOT_SHARE else models[-1]
        else:
            arrival_s += rng.expovariate(rate)
            model = rng.choice(models)
        slo = BATCH if is_batch else INTERACTIVE
        prompt = f"{asks[number % len(asks)]} ({number})"  # no prompt twice: nothing is found in a cache
        yield LiveRequest(number, arrival_s, model, slo, prompt)
