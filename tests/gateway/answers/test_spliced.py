"""Events of a stream are, byte for byte, what encoding them as a whole gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.answers.event import written
from gateway.answers.spliced import MARK, SplicedText
from gateway.endpoints.chats.chat import ChatRenderer
from gateway.endpoints.texts.completions import CompletionRenderer
from gateway.openai.answers.answers import (
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatDelta,
    Completion,
    CompletionChoice,
    Usage,
)
from gateway.openai.answers.delta import Delta

TEXTS = st.text(min_size=1, max_size=20)
MODEL = f'a "model" named {MARK} by a joker'


@given(text=TEXTS, choice=st.integers(0, 2), include_usage=st.booleans())
@example(text=MARK, choice=1, include_usage=True)
@example(text='"\\\n🧵', choice=0, include_usage=False)
def test_chat(text: str, choice: int, include_usage: bool) -> None:
    renderer = ChatRenderer("r", 7, MODEL, 3, None, include_usage=include_usage)
    renderer.opening(Usage(1, 0, 1))
    (event,) = renderer.events(Delta(text, 1, None, choice))
    whole = ChatCompletionChunk(
        id="chatcmpl-r",
        created=7,
        model=MODEL,
        choices=[ChatChunkChoice(index=choice, delta=ChatDelta(content=text))],
        usage=None if include_usage else UNSET,
    )
    assert event == written(whole)


@given(text=TEXTS, choice=st.integers(0, 2), include_usage=st.booleans())
@example(text=MARK, choice=1, include_usage=True)
def test_completion(text: str, choice: int, include_usage: bool) -> None:
    renderer = CompletionRenderer("cmpl-r", 7, MODEL, [MARK, "", "echo"], None, include_usage=include_usage)
    renderer.opening(Usage(1, 0, 1))
    (event,) = renderer.events(Delta(text, 1, None, choice))
    whole = Completion(
        id="cmpl-r",
        created=7,
        model=MODEL,
        choices=[CompletionChoice(index=choice, text=text)],
        usage=None if include_usage else UNSET,
    )
    assert event == written(whole)


def test_an_event_without_the_mark_is_no_pattern() -> None:
    with pytest.raises(AssertionError):
        SplicedText(CompletionChoice(index=0, text="text"))
