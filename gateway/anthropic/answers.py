"""Answers of Anthropic's Messages API, whole and as events of a stream."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.http.anthropic_errors import MessagesError

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class ThinkingCount(Struct, frozen=True, kw_only=True):
    """Of an answer."""

    thinking_tokens: int
    """Tokens of thoughts, with the marks around them."""


class TokenCounts(Struct, frozen=True, kw_only=True):
    """Of one request."""

    input_tokens: int
    """Of the prompt, without those that were cached."""
    cache_read_input_tokens: int | UnsetType = UNSET
    """Tokens whose keys and values lay in a cache; absent while that is not known, and then all are input tokens."""
    output_tokens: int
    output_tokens_details: ThinkingCount | UnsetType = UNSET
    """Absent where thoughts are not told apart."""


class TextContent(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A text of an answer."""

    text: str


class ThinkingContent(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: Literal[""] = ""
    """Thoughts are not signed here."""


class ToolUseContent(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call that the client is asked for."""

    id: str
    name: str
    input: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
    """As the model wrote it."""


ContentBlock = TextContent | ThinkingContent | ToolUseContent


class MessageAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """Answer of ``/v1/messages``; in a stream's first event, without content and reason."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    """The one that came, where that is the reason."""
    usage: TokenCounts


class TextDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="text_delta"):
    """More of a text."""

    text: str


class ThinkingDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking_delta"):
    """More of what the model thought."""

    thinking: str


class SignatureDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="signature_delta"):
    """The end of what the model thought: clients wait for it."""

    signature: Literal[""] = ""


class InputDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_json_delta"):
    """More of a call's input, as JSON."""

    partial_json: str


BlockDelta = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class MessageStart(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_start"):
    """The first event."""

    message: MessageAnswer


class ContentBlockStart(Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_start"):
    """A block begins; it has nothing yet but its place."""

    index: int
    content_block: ContentBlock


class ContentBlockDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_delta"):
    """More of the block that was begun last."""

    index: int
    delta: BlockDelta


class ContentBlockStop(Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_stop"):
    """It is whole, unless the answer was cut within it."""

    index: int


class MessageEnd(Struct, frozen=True, kw_only=True):
    """Why an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_delta"):
    """The last but one event."""

    delta: MessageEnd
    usage: TokenCounts
    """Of the whole request."""


class MessageStop(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_stop"):
    """The last event: a stream without it is not complete."""


MessageEvent = (
    MessageStart | ContentBlockStart | ContentBlockDelta | ContentBlockStop | MessageDelta | MessageStop | MessagesError
)
MESSAGE_EVENTS: tuple[type[Struct], ...] = get_args(MessageEvent)


class TokenCount(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/messages/count_tokens``."""

    input_tokens: int
