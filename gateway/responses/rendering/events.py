"""Events of a stream of the Responses API; each goes out under the name that is its type."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.openai.answers.answers import ChatTokenLogprob
from gateway.responses.answer import OutputItem, OutputText, ReasoningText, ResponseAnswer


class ResponseEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What all have in common."""

    sequence_number: int


class ResponseCreated(ResponseEvent, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""

    response: ResponseAnswer


class ResponseInProgress(ResponseEvent, frozen=True, kw_only=True, tag="response.in_progress"):
    """The second."""

    response: ResponseAnswer


class ResponseCompleted(ResponseEvent, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of a whole answer."""

    response: ResponseAnswer


class ResponseIncomplete(ResponseEvent, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of an answer that its limit has cut."""

    response: ResponseAnswer


class ResponseFailed(ResponseEvent, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of a stream that has no end, behind the `ResponseErrorEvent`."""

    response: ResponseAnswer


class ResponseErrorEvent(ResponseEvent, frozen=True, kw_only=True, tag="error"):
    """What went wrong."""

    code: str
    message: str
    param: str | None


class _OfItem(ResponseEvent, frozen=True, kw_only=True):
    output_index: int


class OutputItemAdded(_OfItem, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""

    item: OutputItem


class OutputItemDone(_OfItem, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""

    item: OutputItem


class _OfNamedItem(_OfItem, frozen=True, kw_only=True):
    item_id: str


class ContentPartAdded(_OfNamedItem, frozen=True, kw_only=True, tag="response.content_part.added"):
    """The text of an item begins."""

    content_index: int = 0
    part: OutputText | ReasoningText


class ContentPartDone(_OfNamedItem, frozen=True, kw_only=True, tag="response.content_part.done"):
    """The text of an item is whole."""

    content_index: int = 0
    part: OutputText | ReasoningText


class OutputTextDelta(_OfNamedItem, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More text."""

    content_index: int = 0
    delta: str
    logprobs: Sequence[ChatTokenLogprob] = []


class OutputTextDone(_OfNamedItem, frozen=True, kw_only=True, tag="response.output_text.done"):
    """All text."""

    content_index: int = 0
    text: str
    logprobs: Sequence[ChatTokenLogprob] = []


class ReasoningTextDelta(_OfNamedItem, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More thoughts."""

    content_index: int = 0
    delta: str


class ReasoningTextDone(_OfNamedItem, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """All thoughts."""

    content_index: int = 0
    text: str


class CallArgumentsDelta(_OfNamedItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class CallArgumentsDone(_OfNamedItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """All of a call's arguments."""

    name: str
    arguments: str


STREAM_EVENTS: list[type[ResponseEvent]] = [
    ResponseCreated,
    ResponseInProgress,
    ResponseCompleted,
    ResponseIncomplete,
    ResponseFailed,
    ResponseErrorEvent,
    OutputItemAdded,
    OutputItemDone,
    ContentPartAdded,
    ContentPartDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    CallArgumentsDelta,
    CallArgumentsDone,
]
"""All kinds."""
