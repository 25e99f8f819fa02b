"""Chunks of an answer become blocks: thoughts, texts and calls, each begun, added to and ended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.blocks import BlockAdded, BlockBegun, BlockEnded, BlockEvent, Blocks
from gateway.openai.answers.answers import ChatDelta, FunctionDelta, ToolCallDelta


def thought(text: str) -> ChatDelta:
    return ChatDelta(reasoning_content=text)


def said(text: str) -> ChatDelta:
    return ChatDelta(content=text)


def called(number: int, name: str) -> ChatDelta:
    function = FunctionDelta(name=name, arguments="")
    return ChatDelta(tool_calls=[ToolCallDelta(index=number, id=f"call_{number}", type="function", function=function)])


def argued(number: int, text: str) -> ChatDelta:
    return ChatDelta(tool_calls=[ToolCallDelta(index=number, function=FunctionDelta(arguments=text))])


def told(event: BlockEvent) -> str:
    """An event in short: ``0+thoughts``, ``0:text``, ``0-``."""
    number = event.block.number
    if isinstance(event, BlockBegun):
        block = event.block
        return f"{number}+{block.kind}" + (f" {block.name}#{block.call_id}" if block.kind == "call" else "")
    return f"{number}:{event.text}" if isinstance(event, BlockAdded) else f"{number}-"


def events(deltas: Sequence[ChatDelta]) -> list[str]:
    blocks = Blocks()
    return [told(event) for delta in deltas for event in blocks.add(delta)] + [told(event) for event in blocks.end()]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([], "0+text 0-"),
        ([said(""), said("a"), said("b")], "0+text 0:a 0:b 0-"),
        ([thought("h"), thought("m"), said("a")], "0+thoughts 0:h 0:m 0- 1+text 1:a 1-"),
        ([said("a"), called(0, "f"), argued(0, "{"), argued(0, "}")], "0+text 0:a 0- 1+call f#call_0 1:{ 1:} 1-"),
        ([called(0, "f"), called(1, "g"), argued(1, "{}")], "0+call f#call_0 0- 1+call g#call_1 1:{} 1-"),
        ([called(0, "f"), argued(0, "{}"), said("a")], "0+call f#call_0 0:{} 0- 1+text 1:a 1-"),
    ],
)
def test_a_block_ends_where_another_begins(deltas: list[ChatDelta], expected: str) -> None:
    assert " ".join(events(deltas)) == expected


DELTAS = st.lists(
    st.one_of(st.text("ab", max_size=2).map(said), st.text("cd", max_size=2).map(thought), st.just(called(0, "f")))
)


@given(DELTAS)
def test_at_most_one_is_open_and_the_texts_are_those_of_the_chunks(deltas: list[ChatDelta]) -> None:
    blocks, open_number = Blocks(), None
    for event in [*(event for delta in deltas for event in blocks.add(delta)), *blocks.end()]:
        if isinstance(event, BlockBegun):
            assert open_number is None
            open_number = event.block.number
        else:
            assert open_number == event.block.number
            open_number = None if isinstance(event, BlockEnded) else open_number
    assert open_number is None
    assert [block.number for block in blocks.all] == list(range(max(1, len(blocks.all))))
    for kind, field in (("text", "content"), ("thoughts", "reasoning_content")):
        given = "".join(text for delta in deltas if isinstance(text := getattr(delta, field), str))
        assert "".join(block.text for block in blocks.all if block.kind == kind) == given
