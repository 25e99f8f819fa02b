"""Pieces of an answer that pass as they are, and those that are looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.endpoints.choice_reading import ChoiceReading
from gateway.endpoints.tool_answers import CallReading
from gateway.openai.answers import ChatDelta
from gateway.openai.delta import Delta
from gateway.reasoning.marks import THINK, ThoughtReading
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
