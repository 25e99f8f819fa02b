"""Texts of outputs, and the thoughts and the answer that they are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.reasoning.marks import HARMONY, THINK, ReasoningMarks, ThoughtReading, is_left_open, marks_of
from gateway.reasoning.output_splitter import splitter_of
from gateway.reasoning.splitter import ReasoningSplitter

NUM_SPACES = 300_000


def split(*pieces: str, is_open: bool = False) -> tuple[str, str]:
    splitter = ReasoningSplitter(ThoughtReading(THINK, is_open))
    parts = [*(part for piece in pieces for part in splitter.feed(piece)), *splitter.end()]
    return "".join(part.thoughts for part in parts), "".join(part.answer for part in parts)


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("", "", ""),
        ("Paris.", "", "Paris."),
        (" \nParis.\n", "", " \nParis.\n"),
        ("<think>\nFrance. Its capital?\n</think>\n\nParis.\n", "France. Its capital?", "Paris.\n"),
        ("\n<think>hm</think>", "hm", ""),
        ("<think>\n\n</think>\n\nParis.", "", "Paris."),
        ("<think>a\n\n b</think>Paris. </think> <think>", "a\n\n b", "Paris. </think> <think>"),
        ("<think>a <think> b</think>c", "a <think> b", "c"),
        # thoughts that do not end, marks that are none
        ("<think>\nIt goes on \n", "It goes on \n", ""),
        ("<think>2 </thin", "2 </thin", ""),
        ("<thin", "", "<thin"),
        ("<thinking> no", "", "<thinking> no"),
        ("I <think> so</think>", "", "I <think> so</think>"),
        ("so</think>", "", "so</think>"),
    ],
)
def test_thoughts_come_before_the_answer(text: str, thoughts: str, answer: str) -> None:
    assert split(text) == (thoughts, answer)
    assert split(*text) == (thoughts, answer)


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("\nHm.\n</think>\n\nParis.", "Hm.", "Paris."),
        ("</think>Paris.", "", "Paris."),
        ("Hm.", "Hm.", ""),
        ("<think>Hm.</think>Paris.", "<think>Hm.", "Paris."),
    ],
)
def test_an_output_that_begins_among_thoughts(text: str, thoughts: str, answer: str) -> None:
    assert split(text, is_open=True) == (thoughts, answer)
    assert split(*text, is_open=True) == (thoughts, answer)


@pytest.mark.timeout(120)  # a second or two; looked at anew with each piece, it would take minutes
@pytest.mark.parametrize("marks", [THINK, HARMONY])
def test_white_space_may_come_without_end(marks: ReasoningMarks) -> None:
    splitter = splitter_of(ThoughtReading(marks, is_open=False))
    parts = [part for _ in range(NUM_SPACES) for part in splitter.feed("\n")]
    parts += splitter.feed("a")
    assert "".join(part.answer for part in parts) == "\n" * NUM_SPACES + "a"


@pytest.mark.timeout(120)
def test_white_space_may_come_without_end_among_thoughts() -> None:
    splitter = ReasoningSplitter(ThoughtReading(THINK, is_open=True))
    parts = splitter.feed("a")
    parts += [part for _ in range(NUM_SPACES) for part in splitter.feed("\n")]
    parts += [*splitter.feed("b"), *splitter.feed(" </think>c")]
    assert "".join(part.thoughts for part in parts) == "a" + "\n" * NUM_SPACES + "b"
    assert parts[-1].answer == "c"


def test_no_more_is_held_back_than_may_be_a_mark() -> None:
    splitter = ReasoningSplitter(ThoughtReading(THINK, is_open=False))
    pieces = ["<th", "ink>", "\n", "a", " ", "</", "b", "</think", ">", "\n", "c", " ", "<"]
    parts = [part for piece in pieces for part in splitter.feed(piece)]
    assert [part.thoughts for part in parts] == ["", "", "", "a", "", "", " </b", "", "", "", "", "", ""]
    assert [part.answer for part in parts] == ["", "", "", "", "", "", "", "", "", "", "c", " ", "<"]


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "think", "/", ">", " ", "\n", "a", "é"]), max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
    st.booleans(),
)
def test_any_cut_of_the_text_gives_the_same_and_loses_nothing(words: list[str], cuts: list[int], is_open: bool) -> None:
    text = "".join(words)
    ends = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[begin:end] for begin, end in pairwise(ends)]
    thoughts, answer = split(text, is_open=is_open)
    assert split(*pieces, is_open=is_open) == (thoughts, answer)
    left = text.replace("<think>", "", 1) if not is_open and text.lstrip().startswith("<think>") else text
    if thoughts or left != text or is_open:
        left = left.replace("</think>", "", 1)
    assert "".join((thoughts + answer).split()) == "".join(left.split())


def test_marks_are_those_of_the_template() -> None:
    qwen3 = "{%- if '</think>' in message.content %}{{ reasoning_content }}{% endif %}"
    assert (marks_of(qwen3), marks_of("{{ messages }}"), marks_of("")) == (THINK, None, None)
    assert (marks_of(qwen3, "none"), marks_of("", "think")) == (None, THINK)


def test_a_prompt_may_end_among_thoughts() -> None:
    assert is_left_open("<|assistant|><think>\n", THINK)
    assert is_left_open("<think>a</think><|assistant|><think>\n", THINK)
    assert not is_left_open("<|assistant|><think>\n\n</think>\n\n", THINK)
    assert not is_left_open("<|assistant|>", THINK)
