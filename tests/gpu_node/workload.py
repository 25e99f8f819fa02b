"""Requests of every kind for the tiny model, and what an engine answers."""

from __future__ import annotations

import random
from typing import Any

from gpu_node.engine.engine import Engine
from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node import tiny

Answers = dict[tuple[str, int], tuple[list[int], str]]
"""Tokens and finish reason by request and choice."""


def answers(engine: Engine, payloads: list[Payload]) -> Answers:
    found: Answers = {}
    for payload in payloads:
        assert engine.add(payload) == []
    for chunks in tiny.steps(engine):
        for chunk in chunks:
            assert not chunk.error
            before, _ = found.get((chunk.request_id, chunk.choice), ([], ""))
            found[chunk.request_id, chunk.choice] = ([*before, *chunk.token_ids], chunk.finish_reason)
    return found


def request(name: str, prompt: list[int], max_tokens: int = 8, **sampling: Any) -> Payload:
    return Payload(name, 0, "g", "tiny", prompt, Sampling(max_tokens=max_tokens, **sampling))


def prompt(seed: int, num_tokens: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(3, tiny.VOCAB) for _ in range(num_tokens)]


def mixed_requests(num_requests: int, seed: int) -> list[Payload]:
    numbers = random.Random(seed)
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_k": 20},
        {"num_choices": 3},
        {"num_choices": 1, "num_candidates": 3},
        {"is_beam": True, "num_candidates": 3, "num_choices": 2},
        {"temperature": 0.7, "presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 0.0, "repetition_penalty": 1.3},
        {"temperature": 2.0, "stop_token_ids": list(range(3, 20))},
    ]
    return [
        request(str(number), prompt(number, numbers.randint(1, 30)), numbers.randint(1, 16), seed=number, **kind)
        for number in range(num_requests)
        for kind in [numbers.choice(kinds)]
    ]
