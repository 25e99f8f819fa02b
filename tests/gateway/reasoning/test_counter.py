"""Outputs token by token, and how many of their tokens are thoughts."""

from __future__ import annotations

import pytest

from gateway.reasoning.counter import ThoughtCounter
from gateway.reasoning.marks import HARMONY, THINK, ThoughtReading


def counted(tokens: list[str], *, is_open: bool = False) -> list[int]:
    """What each token decides."""
    counter = ThoughtCounter(ThoughtReading(THINK, is_open))
    found = []
    for text in tokens:
        counter.take(text)
        found.append(counter.found())
    return found


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["<think>", "\n", "Hm", ".", "</think>", "\n\n", "Paris", "."], [1, 1, 1, 1, 1, 0, 0, 0]),
        (["<think>", "</think>", "Paris"], [1, 1, 0]),
        # no thoughts
        (["Paris", ".", "</think>"], [0, 0, 0]),
        (["\n", "<", "thin", "gs"], [0, 0, 0, 0]),
        (["<thi"], [0]),
        # marks in pieces: nobody knows before the first is whole; what completes the last counts, whatever is behind
        (["\n", "<th", "ink>", "a", "</", "think", ">\nP", "aris"], [0, 0, 3, 1, 1, 1, 1, 0]),
        (["<think>Hm.</think>Paris", "."], [1, 0]),
        # tokens without a text
        (["", "<think>", "", "a", "</think>", ""], [0, 2, 1, 1, 1, 0]),
        # they do not end
        (["<think>", "On", " and", " </thin", ""], [1, 1, 1, 1, 1]),
        # what looks like a mark later is text
        (["<think>", "a", "</think>", "<think>", "b", "</think>"], [1, 1, 1, 0, 0, 0]),
    ],
)
def test_tokens_of_thoughts_with_their_marks(tokens: list[str], found: list[int]) -> None:
    assert counted(tokens) == found


def test_an_output_that_begins_among_thoughts() -> None:
    assert counted(["Hm", ".", "</think>", "Paris"], is_open=True) == [1, 1, 1, 0]
    assert counted(["</think>", "Paris"], is_open=True) == [1, 0]


def test_what_was_found_is_told_once() -> None:
    counter = ThoughtCounter(ThoughtReading(THINK, is_open=True))
    counter.take("a")
    counter.take("b")
    assert (counter.found(), counter.found()) == (2, 0)


def test_those_of_channels_end_with_the_header_of_what_follows() -> None:
    counter = ThoughtCounter(ThoughtReading(HARMONY, is_open=False))
    found = []
    for text in ("<|channel|>", "analysis", "<|message|>", "Hm", "<|end|>", "<|channel|>", "final", "<|message|>", "A"):
        counter.take(text)
        found.append(counter.found())
    assert found == [0, 0, 3, 1, 1, 1, 1, 1, 0]
