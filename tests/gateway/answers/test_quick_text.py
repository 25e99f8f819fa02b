"""Text that passes is written ahead of time, byte for byte as a renderer writes what it has to look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.answer import Renderer
from gateway.answers.event import written
from gateway.anthropic.renderer import MessageRenderer
from gateway.endpoints.chats.chat import ChatRenderer
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.openai.answers.answers import ChatDelta, Usage
from gateway.openai.answers.delta import Delta
from gateway.reasoning.marks import THINK, ThoughtReading
from gateway.responses.rendering.renderer import ResponsesRenderer
from gateway.responses.requests.request import ResponsesRequest
from gateway.tools.notation import NOTATIONS

CALL = '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'
BODY = ResponsesRequest.model_validate({"model": "m", "input": "hi"})


class _LongWay(ChoiceReading):
    """Looks at each piece."""

    def passes(self, text: str) -> bool:
        return False


def chat(reading: ChoiceReading) -> Renderer:
    return ChatRenderer("r", 7, "m", 1, None, [reading], include_usage=True)


def responses(reading: ChoiceReading) -> Renderer:
    return ResponsesRenderer(BODY, reading, "r", 7)


def messages(reading: ChoiceReading) -> Renderer:
    return MessageRenderer("r", "m", reading, shows_thoughts=True)


def stream(renderer: Callable[[ChoiceReading], Renderer], kind: type[ChoiceReading], pieces: list[str]) -> list[bytes]:
    """All events of an answer, each piece of which is a token."""
    calls = CallReading(NOTATIONS["hermes"], {"get": None}, is_single=False)
    writer = renderer(kind(ThoughtReading(THINK, is_open=False), calls, "r", 0))
    events = [*writer.opening(Usage(3, 0, 3))]
    for delta in [*(Delta(piece, 1) for piece in pieces), Delta(finish_reason="stop")]:
        events += writer.events(delta)
    return [written(event) for event in [*events, *writer.closing(Usage(3, 4, 7))]]


@pytest.mark.parametrize("renderer", [chat, responses, messages])
@given(pieces=st.lists(st.sampled_from(["a", " b", "é\n", "<", "<think>", "</think>", CALL, "<tool", ""]), max_size=9))
def test_the_quick_way_of_text_writes_the_same(
    renderer: Callable[[ChoiceReading], Renderer], pieces: list[str]
) -> None:
    assert stream(renderer, ChoiceReading, pieces) == stream(renderer, _LongWay, pieces)


class _Watched(ChoiceReading):
    """Remembers what it looked at."""

    def __init__(self) -> None:
        super().__init__(None, None, "r", 0)
        self.seen: list[str] = []

    def deltas(self, delta: Delta) -> list[ChatDelta]:
        self.seen.append(delta.text)
        return super().deltas(delta)


@pytest.mark.parametrize("renderer", [chat, responses, messages])
def test_text_behind_text_goes_the_quick_way(renderer: Callable[[ChoiceReading], Renderer]) -> None:
    reading = _Watched()
    writer = renderer(reading)
    writer.opening(Usage(3, 0, 3))
    for piece in ("a", "b", "c"):
        writer.events(Delta(piece, 1))
    assert reading.seen in ([], ["a"])  # the first may begin something
