"""What of a chat's answer are thoughts, text and calls of functions: choice by choice, whole and in chunks."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from gateway.endpoints.chats.tool_answers import CallReading, ChoiceCalls
from gateway.openai.answers.answers import AnswerMessage, ChatDelta, ChatFinishReason
from gateway.openai.answers.delta import Delta
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
        found: list[ChatDelta] = []
        for split, part in self._parts(delta):
            if split.thoughts:
                found.append(ChatDelta(reasoning_content=split.thoughts))
            if self._calls is not None:
                found += self._calls.deltas(part)
            elif split.answer:
                found.append(ChatDelta(content=split.answer))
        return found

    def whole(self, delta: Delta) -> AnswerMessage:
        """The turn, complete."""
        splits = self._split(delta)
        thoughts, answer = ("".join(one.thoughts for one in splits), "".join(one.answer for one in splits))
        message = AnswerMessage(content=answer)
        if self._calls is not None:
            message = self._calls.whole(structs.replace(delta, text=answer))
        if not thoughts:
            return message
        return structs.replace(message, content=message.content or None, reasoning_content=thoughts)

    def reason(self, delta: Delta) -> ChatFinishReason | None:
        """Why it ended, if it did."""
        return delta.finish_reason if self._calls is None else self._calls.reason(delta)

    def _parts(self, delta: Delta) -> Iterator[tuple[Split, Delta]]:
        """In their order, each with the delta of its part of the answer; the end comes with the last."""
        splits = self._split(delta)
        for number, split in enumerate(splits, 1):
            reason = delta.finish_reason if number == len(splits) else None
            yield split, structs.replace(delta, text=split.answer, finish_reason=reason)

    def _split(self, delta: Delta) -> list[Split]:
        """At least one where the choice ends."""
        if self._splitter is None:
            return [Split(answer=delta.text)]
        splits = self._splitter.feed(delta.text)
        return splits if delta.finish_reason is None else [*splits, *self._splitter.end(), Split()]
