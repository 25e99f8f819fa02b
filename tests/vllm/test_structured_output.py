"""Outputs that a real vLLM has to hold to a language: whole, resumed, drawn by either side, beside others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gpu_node.engine.process.protocol.protocol import RunAttempt
from shared.messages.requests.payload import Constraint
from shared.messages.requests.requests import Chunk
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.nodes import chunks_until_end, request, tokens_of

MAX_TOKENS = 120
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = Constraint("json_schema", json.dumps(PERSON))
REGEX = Constraint("regex", "[0-9]{3}-[a-f]{1,6} (one|two)")
CHOICE = Constraint("choice", json.dumps(["positive", "negative", "neither"]))
GRAMMAR = Constraint("grammar", 'start: "[" item ("," item){0,3} "]"\nitem: /[a-z]{2,5}/')


@pytest.fixture(scope="module")
def tokenizer(smol: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smol / "tokenizer.json"))


@pytest.fixture(scope="module")
def prompt(tokenizer: Tokenizer) -> list[int]:
    return list(tokenizer.encode("Question: Who are you?\nAnswer:").ids)


def answered(agent: Agent, name: str, prompt: Sequence[int], constraint: Constraint, **more: Any) -> list[Chunk]:
    agent.send(RunAttempt(request(name, prompt, MAX_TOKENS, constraint=constraint, **more)))
    return chunks_until_end(agent, name)


def is_person(text: str) -> bool:
    found = json.loads(text)
    return list(found) == ["name", "age"] and len(found["name"]) <= 12 and found["age"] <= 120


CASES: list[tuple[Constraint, Callable[[str], object]]] = [
    (SCHEMA, is_person),
    (REGEX, re.compile("[0-9]{3}-[a-f]{1,6} (one|two)").fullmatch),
    (CHOICE, re.compile("positive|negative|neither").fullmatch),
    (GRAMMAR, re.compile(r"\[[a-z]{2,5}(,[a-z]{2,5}){0,3}\]").fullmatch),
]
DRAWS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0},
    {"temperature": 1.0, "seed": 5, "is_seeded": True},
    {"temperature": 0.8, "seed": 6, "is_seeded": True, "presence_penalty": 1.0, "top_p": 0.9},
)


@pytest.mark.parametrize(("constraint", "holds"), CASES, ids=[constraint.kind for constraint, _ in CASES])
def test_answers_are_of_their_language_and_end_where_it_ends(
    agent: Agent, prompt: list[int], tokenizer: Tokenizer, constraint: Constraint, holds: Callable[[str], object]
) -> None:
    """Even of a request that ignores what the model would end with."""
    for number, draws in enumerate(DRAWS):
        chunks = answered(agent, f"{constraint.kind}-{number}", prompt, constraint, **draws)
        text = tokenizer.decode(tokens_of(chunks))
        assert (chunks[-1].finish_reason, bool(holds(text))) == ("stop", True), text


def test_an_attempt_that_goes_on_goes_on_in_its_language(agent: Agent, prompt: list[int]) -> None:
    for number, draws in enumerate((DRAWS[0], *DRAWS[2:])):
        whole = tokens_of(answered(agent, f"whole-{number}", prompt, REGEX, **draws))
        for had in (1, 3, len(whole) - 1):
            rest = answered(agent, f"rest-{number}-{had}", prompt, REGEX, output=whole[:had], attempt=1, **draws)
            assert (tokens_of(rest), rest[-1].finish_reason) == (whole[had:], "stop")


def test_an_attempt_whose_output_was_whole_ends_without_a_token(
    agent: Agent, prompt: list[int], tokenizer: Tokenizer
) -> None:
    had = tokenizer.encode("negative").ids
    (chunk,) = answered(agent, "over", prompt, CHOICE, output=had, attempt=1)
    assert (chunk.index, chunk.token_ids, chunk.finish_reason, chunk.is_last) == (len(had), [], "stop", True)


def test_others_beside_it_draw_what_they_draw_alone(agent: Agent, prompt: list[int]) -> None:
    def answer(name: str, **more: Any) -> list[int]:
        agent.send(RunAttempt(request(name, prompt, 24)), *(RunAttempt(one) for one in more.get("beside", ())))
        return tokens_of(chunks_until_end(agent, name))

    alone = answer("alone")
    beside = [request(f"held-{number}", prompt, 40, constraint=SCHEMA, **DRAWS[number]) for number in range(4)]
    assert answer("beside", beside=beside) == alone


def test_choices_each_hold_to_it_and_no_logprob_is_of_a_token_that_may_not_be(
    agent: Agent, prompt: list[int], tokenizer: Tokenizer
) -> None:
    more: dict[str, Any] = {"num_choices": 3, "num_candidates": 3, "temperature": 1.5, "num_logprobs": 5}
    chunks = answered(agent, "choices", prompt, CHOICE, **more)
    for choice in range(3):
        text = tokenizer.decode(tokens_of([chunk for chunk in chunks if chunk.choice == choice]))
        assert text in ("positive", "negative", "neither")
    logprobs = [logprob for chunk in chunks for logprob in chunk.logprobs]
    values = [value for one in logprobs for value in (one.logprob, *(top for _, top in one.top))]
    assert all(math.isfinite(value) for value in values)


def test_what_cannot_be_compiled_is_said_and_spares_the_others(agent: Agent, prompt: list[int]) -> None:
    (chunk,) = answered(agent, "bad", prompt, Constraint("grammar", "start: nobody"))
    assert (chunk.finish_reason, chunk.is_last) == ("error", True)
    assert chunk.error.startswith("structured output: ")
    assert tokens_of(answered(agent, "good", prompt, CHOICE))
