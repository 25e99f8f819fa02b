"""Answers of ``POST /v1/messages``: a message of blocks, or the events that make one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from gateway.answers.blocks import AnswerBlock, AnswerReading, BlockAdded, BlockBegun, BlockEvent, Blocks
from gateway.answers.event import SseEvent, named
from gateway.answers.settled import Settled
from gateway.answers.spliced import MARK, SplicedText
from gateway.anthropic.answers import (
    ContentBlock,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputDelta,
    MessageAnswer,
    MessageDelta,
    MessageEnd,
    MessageEvent,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StopReason,
    TextContent,
    TextDelta,
    ThinkingContent,
    ThinkingCount,
    ThinkingDelta,
    TokenCounts,
    ToolUseContent,
)
from gateway.http.anthropic_errors import messages_error
from gateway.openai.answers.answers import ChatFinishReason, Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.half_characters import without_halves

_REASONS: dict[ChatFinishReason, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


class MessageRenderer(Settled):
    """Writes one answer, of one choice."""

    def __init__(self, request_id: str, model: str, reading: AnswerReading, *, shows_thoughts: bool) -> None:
        """``reading``: finds what is no text; a new one, since it is read as it comes."""
        self._request_id = request_id
        self._model = model
        self._reading = reading
        self._shows_thoughts = shows_thoughts
        self._blocks = Blocks()
        self._texts: dict[int, SplicedText] = {}  # by block
        self._end: MessageEnd | None = None

    def opening(self, usage: Usage) -> list[SseEvent]:
        """The message without its content."""
        return [_event(MessageStart(message=self._message([], None, usage)))]

    def events(self, delta: Delta) -> list[SseEvent]:
        """What begins, what is added and what ends."""
        text = self._blocks.open_text
        if text is not None and delta.finish_reason is None and self._reading.passes(delta.text):
            text.pieces.append(delta.text)
            return [self._spliced(text).around(delta.text)]
        return [_event(event) for change in self._changes(delta) for event in self._written(change)]

    def closing(self, usage: Usage) -> list[SseEvent]:
        """Why it ended, with the counts."""
        assert self._end is not None, "all choices have ended"
        return [_event(MessageDelta(delta=self._end, usage=_counts(usage))), _event(MessageStop())]

    def failed(self, error: ApiError) -> list[SseEvent]:
        """An error in the place of the end."""
        return [_event(messages_error(error, self._request_id))]

    def whole(self, choices: Sequence[Delta], usage: Usage) -> MessageAnswer:
        """The message. A call that the answer's end has cut is left out: there is no object to tell of it."""
        (choice,) = choices
        self._changes(choice)
        assert self._end is not None, "it is whole"
        content = [block for block in map(self._content, self._blocks.all) if block is not None]
        return self._message(content, self._end, usage)

    def _message(self, content: list[ContentBlock], end: MessageEnd | None, usage: Usage) -> MessageAnswer:
        return MessageAnswer(
            id=f"msg_{self._request_id}",
            model=self._model,
            content=content,
            stop_reason=None if end is None else end.stop_reason,
            stop_sequence=None if end is None else end.stop_sequence,
            usage=_counts(usage),
        )

    def _changes(self, delta: Delta) -> list[BlockEvent]:
        changes = [change for one in self._reading.deltas(delta) for change in self._blocks.add(one)]
        if delta.finish_reason is None:
            return changes
        self._end = _end_of(delta, self._reading.reason(delta) or delta.finish_reason)
        return [*changes, *self._blocks.end()]

    def _written(self, change: BlockEvent) -> list[MessageEvent]:
        block = change.block
        if isinstance(change, BlockBegun):
            return [ContentBlockStart(index=block.number, content_block=_begun(block))]
        if isinstance(change, BlockAdded):
            return self._added(block, change.text)
        end = ContentBlockStop(index=block.number)
        if block.kind == "thoughts":
            return [ContentBlockDelta(index=block.number, delta=SignatureDelta()), end]
        return [end]

    def _spliced(self, block: AnswerBlock) -> SplicedText:
        """More of a text, as it goes out: what `_added` would give, at a fraction of its cost."""
        if block.number not in self._texts:
            event = ContentBlockDelta(index=block.number, delta=TextDelta(text=MARK))
            self._texts[block.number] = SplicedText(_event(event))
        return self._texts[block.number]

    def _added(self, block: AnswerBlock, text: str) -> list[MessageEvent]:
        if block.kind == "text":
            return [ContentBlockDelta(index=block.number, delta=TextDelta(text=text))]
        if block.kind == "call":
            return [ContentBlockDelta(index=block.number, delta=InputDelta(partial_json=text))]
        if not self._shows_thoughts:
            return []
        return [ContentBlockDelta(index=block.number, delta=ThinkingDelta(thinking=text))]

    def _content(self, block: AnswerBlock) -> ContentBlock | None:
        if block.kind == "text":
            return TextContent(text=block.text)
        if block.kind == "thoughts":
            return ThinkingContent(thinking=block.text if self._shows_thoughts else "")
        found = without_halves(block.text)
        if not _is_object(found):
            return None
        return ToolUseContent(id=block.call_id, name=block.name, input=msgspec.Raw(found.encode()))


def _begun(block: AnswerBlock) -> ContentBlock:
    if block.kind == "text":
        return TextContent(text="")
    if block.kind == "thoughts":
        return ThinkingContent(thinking="")
    return ToolUseContent(id=block.call_id, name=block.name, input=msgspec.Raw(b"{}"))


def _end_of(delta: Delta, reason: ChatFinishReason) -> MessageEnd:
    if reason == "stop" and delta.stop_string is not None:
        return MessageEnd(stop_reason="stop_sequence", stop_sequence=delta.stop_string)
    return MessageEnd(stop_reason=_REASONS[reason], stop_sequence=None)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _counts(usage: Usage) -> TokenCounts:
    cached, answer = usage.prompt_tokens_details, usage.completion_tokens_details
    return TokenCounts(
        input_tokens=usage.prompt_tokens - (0 if cached is UNSET else cached.cached_tokens),
        cache_read_input_tokens=UNSET if cached is UNSET else cached.cached_tokens,
        output_tokens=usage.completion_tokens,
        output_tokens_details=UNSET if answer is UNSET else ThinkingCount(thinking_tokens=answer.reasoning_tokens),
    )


def _event(event: MessageEvent) -> bytes:
    """Under the name of its type."""
    name = event.__struct_config__.tag
    assert isinstance(name, str)
    return named(name, event)
