"""What of a chat's answer are thoughts, text and calls of functions: choice by choice, whole and in chunks."""

from __future__ import annotations

from msgspec import structs

from gateway.endpoints.tool_answers import CallReading, ChoiceCalls
from gateway.openai.answers import AnswerMessage, ChatDelta, ChatFinishReason
from gateway.openai.delta import Delta
from gateway.reasoning.marks import ThoughtReading
from gateway.reasoning.output_splitter import splitter_of
from gateway.reasoning.splitter import Split


class ChoiceReading:
    """Of one choice."""

    def __init__(
        self, thoughts: ThoughtReading | None, calls: CallReading | None, request_id: str, choice: int
    ) -> None:
        """None of either where there are none to be found."""
        self._splitter = splitter_of(thoughts) if thoughts else None
        self._calls = ChoiceCalls(calls, request_id, choice) if calls else None

    @property
    def is_plain(self) -> bool:
        """There is nothing but text."""
        return self._splitter is None and self._calls is None

    def passes(self, text: str) -> bool:
        """Whether the next piece is the answer's text as it is, with nothing held back before it or of it.

        The quick way of most pieces, which `deltas` would give as one with this ``content``: it is taken then. An empty
        piece never passes.
        """
        if not text or (self._splitter is not None and not self._splitter.passes(text)):
            return False
        return self._calls is None or self._calls.passes(text)

    def deltas(self, delta: Delta) -> list[ChatDelta]:
        """What chunks of a stream add."""
        split = self._split(delta)
        thoughts = [ChatDelta(reasoning_content=split.thoughts)] if split.thoughts else []
        if self._calls is not None:
            return thoughts + self._calls.deltas(structs.replace(delta, text=split.answer))
        return thoughts + ([ChatDelta(content=split.answer)] if split.answer else [])

    def whole(self, delta: Delta) -> AnswerMessage:
        """The turn, complete."""
        split = self._split(delta)
        message = AnswerMessage(content=split.answer)
        if self._calls is not None:
            message = self._calls.whole(structs.replace(delta, text=split.answer))
        if not split.thoughts:
            return message
        return structs.replace(message, content=message.content or None, reasoning_content=split.thoughts)

    def reason(self, delta: Delta) -> ChatFinishReason | None:
        """Why it ended, if it did."""
        return delta.finish_reason if self._calls is None else self._calls.reason(delta)

    def _split(self, delta: Delta) -> Split:
        if self._splitter is None:
            return Split(answer=delta.text)
        split = self._splitter.feed(delta.text)
        if delta.finish_reason is None:
            return split
        end = self._splitter.end()
        return Split(split.thoughts + end.thoughts, split.answer + end.answer)
