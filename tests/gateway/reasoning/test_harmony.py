"""Outputs in messages of channels, as gpt-oss writes them: what of them are thoughts, answer and calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.reasoning.harmony import MAX_HEADER_CHARACTERS, HarmonySplitter
from gateway.reasoning.marks import HARMONY, ThoughtReading, is_left_open, marks_of
from gateway.reasoning.splitter import Split

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
COMMENTARY = "<|channel|>commentary<|message|>"
START = "<|start|>assistant"
CALL = "<|channel|>commentary to=functions.get<|message|>{}<|call|>"


def split(*pieces: str, is_open: bool = False) -> tuple[str, str]:
    splitter = HarmonySplitter(ThoughtReading(HARMONY, is_open))
    splits = [*(one for piece in pieces for one in splitter.feed(piece)), *splitter.end()]
    return "".join(one.thoughts for one in splits), "".join(one.answer for one in splits)


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        (f"{ANALYSIS}It greets.<|end|>{START}{FINAL}Hello!<|return|>", "It greets.", "Hello!"),
        (f"{ANALYSIS}It greets.<|end|>{START}{FINAL}Hello!", "It greets.", "Hello!"),
        (f"{FINAL}Hello!", "", "Hello!"),
        (f"{ANALYSIS}a<|end|>\n{START}{ANALYSIS}b<|end|>{START}{FINAL}c", "ab", "c"),
        # texts before a call are for the client; the call has one form, however its header is written
        (
            f"{ANALYSIS}a<|end|>{START}{COMMENTARY}I look.<|end|>"
            f"{START}<|channel|>commentary to=functions.get <|constrain|>json<|message|>{{}}<|call|>",
            "a",
            f"I look.{CALL}",
        ),
        (f"{START} to=functions.get<|channel|>commentary json<|message|>{{}}<|call|>", "", CALL),
        (" to=functions.get<|channel|>analysis<|message|>{}<|call|>", "", CALL),
        ("<|channel|>commentary to=functions.get<|message|>{}", "", CALL.removesuffix("<|call|>")),
        # tools of OpenAI's own are thoughts where they stand among them
        (f"<|channel|>analysis to=python code<|message|>1 + 1<|call|>{START}{FINAL}2", "1 + 1", "2"),
        # what is no message is answer; a header that breaks off is no text
        ("Hello!", "", "Hello!"),
        ("  <b>", "", "  <b>"),
        ("to be", "", "to be"),
        ("to=", "", "to="),
        ("<|start", "", "<|start"),
        (f"{FINAL}a < b <|x|> c", "", "a < b <|x|> c"),
        (f"{FINAL}a<|end", "", "a<|end"),
        (f"{ANALYSIS}a<|e", "a<|e", ""),
        ("<|channel|>fin", "", ""),
        (f"{FINAL}a<|end|>{START}<|chann", "", "a"),
        (f"{FINAL}a<|channel|>final<|message|>b", "", "ab"),
        (f"<|channel|>{'x' * MAX_HEADER_CHARACTERS}", "", f"<|channel|>{'x' * MAX_HEADER_CHARACTERS}"),
        ("", "", ""),
    ],
)
def test_channels(text: str, thoughts: str, answer: str) -> None:
    assert split(text) == split(*text) == (thoughts, answer)


def test_an_output_that_begins_among_thoughts() -> None:
    assert split(f"a<|end|>{START}{FINAL}b", is_open=True) == ("a", "b")


def test_thoughts_behind_a_part_of_the_answer_stay_behind_it() -> None:
    splitter = HarmonySplitter(ThoughtReading(HARMONY, is_open=False))
    text = f"{ANALYSIS}a<|end|>{START}{COMMENTARY}I look.<|end|>{START}{ANALYSIS}b<|end|>{START}{FINAL}c"
    assert [*splitter.feed(text), *splitter.end()] == [Split("a", "I look."), Split("b", "c")]


def test_no_more_is_held_back_than_may_be_a_mark() -> None:
    splitter = HarmonySplitter(ThoughtReading(HARMONY, is_open=False))
    assert splitter.feed(ANALYSIS) == []
    assert splitter.feed("It <") == [Split("It ")]
    assert splitter.feed("b> greets.") == [Split("<b> greets.")]
    assert (splitter.has_thoughts, splitter.is_past_thoughts) == (True, False)
    assert not splitter.passes("x")
    splitter.feed(f"<|end|>{START}{FINAL}")
    assert splitter.is_past_thoughts
    assert splitter.passes("Hello!")
    assert not splitter.passes("a < b")


PIECES = [ANALYSIS, FINAL, COMMENTARY, START, CALL, "<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|message|>"]
WORDS = ["a", " ", "\n", "<", "to=", "<|", "<b>", "{}"]


@given(
    st.lists(st.sampled_from([*PIECES, *WORDS]), max_size=12),
    st.lists(st.integers(0, 120), max_size=8),
    st.booleans(),
)
@settings(max_examples=500)
def test_any_cut_of_the_text_gives_the_same(words: list[str], cuts: list[int], is_open: bool) -> None:
    text = "".join(words)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert split(*pieces, is_open=is_open) == split(text, is_open=is_open) == split(*text, is_open=is_open)


def test_marks_are_those_of_the_template() -> None:
    assert marks_of("{{ '<|channel|>analysis<|message|>' }}") is HARMONY
    assert marks_of("", "harmony") is HARMONY
    assert not is_left_open(f"{START}{ANALYSIS}a<|end|>{START}", HARMONY)
