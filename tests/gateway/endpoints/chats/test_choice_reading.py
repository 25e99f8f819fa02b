"""Pieces of an answer that pass as they are, and those that are looked at."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answers.blocks import Blocks
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.openai.answers.answers import ChatDelta
from gateway.openai.answers.delta import Delta
from gateway.reasoning.marks import HARMONY, THINK, ThoughtReading
from gateway.tools.notation import HARMONY as HARMONY_CALLS
from gateway.tools.notation import HERMES, LLAMA3_JSON, NOTATIONS, Notation

THOUGHTS = ThoughtReading(THINK, is_open=False)


def reading(notation: Notation | None, thoughts: ThoughtReading | None = None) -> ChoiceReading:
    calls = None if notation is None else CallReading(notation, {"get": None}, is_single=False)
    return ChoiceReading(thoughts, calls, "r", 0)


def passed(one: ChoiceReading, *pieces: str) -> list[bool]:
    """Of each piece, whether it passes; the others are taken as they have to be."""
    found = []
    for piece in pieces:
        found.append(one.passes(piece))
        if not found[-1]:
            one.deltas(Delta(piece, 1))
    return found


@pytest.mark.parametrize(
    ("one", "pieces", "expected"),
    [
        (reading(None), ["a", "", " "], [True, False, True]),
        (reading(HERMES), ["I", " look", " ", "up", " <", "a", "b"], [True, True, False, False, False, False, True]),
        (reading(HERMES), ['<tool_call>{"name": "get"', "}", "a"], [False, False, False]),
        (reading(LLAMA3_JSON), ["a", "b"], [False, True]),  # a call may begin an output without a mark
        (reading(None, THOUGHTS), ["<think>", "a", "</think>", "b", "c"], [False, False, False, False, True]),
        (reading(HERMES, THOUGHTS), ["a", "b"], [False, True]),
    ],
)
def test_what_passes(one: ChoiceReading, pieces: list[str], expected: list[bool]) -> None:
    assert passed(one, *pieces) == expected


PIECES = [
    "a",
    " b",
    "c ",
    "\n",
    "<",
    "[",
    "{",
    "<think>",
    "</think>",
    "<tool_call>",
    '{"name": "get", "parameters": {}}',
]


@given(st.sampled_from([None, *NOTATIONS.values()]), st.booleans(), st.lists(st.sampled_from(PIECES), max_size=9))
def test_what_passes_is_what_it_would_have_been(notation: Notation | None, thinks: bool, pieces: list[str]) -> None:
    quick, slow = (reading(notation, THOUGHTS if thinks else None) for _ in range(2))
    for piece in pieces:
        delta = Delta(piece, 1)
        expected = slow.deltas(delta)
        found = [ChatDelta(content=piece)] if quick.passes(piece) else quick.deltas(delta)
        assert found == expected
    end = Delta(finish_reason="stop")
    assert quick.deltas(end) == slow.deltas(end)
    assert quick.reason(end) == slow.reason(end)


MESSAGES = [
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|channel|>commentary to=functions.get<|message|>",
    "<|start|>assistant",
    "<|end|>",
    "{}",
    " ",
    "Hm.",
]


def blocks(pieces: list[str]) -> list[tuple[str, str]]:
    """Kinds and texts of the blocks that the pieces of an output of gpt-oss make."""
    one, found = reading(HARMONY_CALLS, ThoughtReading(HARMONY, is_open=False)), Blocks()
    for number, piece in enumerate(pieces, 1):
        for delta in one.deltas(Delta(piece, 1, "stop" if number == len(pieces) else None)):
            found.add(delta)
    found.end()
    return [(block.kind, block.text) for block in found.all]


def test_thoughts_between_answers_are_blocks_of_their_own() -> None:
    text = (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c"
    )
    assert blocks([text]) == [("thoughts", "a"), ("text", "I look."), ("thoughts", "b"), ("text", "c")]


@given(st.lists(st.sampled_from(MESSAGES), max_size=12), st.lists(st.integers(0, 300), max_size=6))
@settings(max_examples=300)
def test_blocks_are_the_same_however_an_output_is_cut(words: list[str], cuts: list[int]) -> None:
    text = "".join(words)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert blocks([text[begin:end] for begin, end in pairwise(places)]) == blocks([text]) == blocks([*text, ""])
