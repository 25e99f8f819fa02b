"""Calls of functions in an answer, whole and in chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.openai.answers.answers import (
    AnswerMessage,
    CalledFunction,
    ChatDelta,
    ChatFinishReason,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from gateway.openai.answers.delta import Delta
from gateway.tools.call_parser import CallParser
from gateway.tools.calls.call_reader import Functions
from gateway.tools.events import Arguments, CallBegin, Text, ToolEvent
from gateway.tools.notation import Notation

ID_CHARACTERS = 24  # behind ``call_``, as OpenAI has them


@dataclass(frozen=True)
class CallReading:
    """How calls are found in the answers to a request."""

    notation: Notation
    functions: Functions
    is_single: bool
    """An answer has one at most: further ones are left out."""
    num_earlier: int = 0
    """Calls in the conversation before it."""


class ChoiceCalls:
    """Text and calls of one choice; a call's id is made of the request's, the choice and the call's number."""

    def __init__(self, reading: CallReading, request_id: str, choice: int) -> None:
        self._parser = CallParser(reading.notation, reading.functions)
        self._reading = reading
        self._seed = f"{request_id}/{choice}"
        self._num_calls = 0

    def passes(self, text: str) -> bool:
        """See `ChoiceReading.passes`."""
        return self._parser.passes(text)

    def deltas(self, delta: Delta) -> list[ChatDelta]:
        """What chunks of a stream add."""
        return [self._added(event) for event in self._events(delta)]

    def whole(self, delta: Delta) -> AnswerMessage:
        """The turn, complete."""
        texts: list[str] = []
        calls: list[tuple[str, list[str]]] = []
        for event in self._events(delta):
            if isinstance(event, Text):
                texts.append(event.text)
            elif isinstance(event, CallBegin):
                calls.append((event.name, []))
            else:
                calls[-1][1].append(event.text)
        if not calls:
            return AnswerMessage(content="".join(texts))
        return AnswerMessage(
            content="".join(texts) or None,
            tool_calls=[
                ToolCall(id=self._id(number, name), function=CalledFunction(name=name, arguments="".join(pieces)))
                for number, (name, pieces) in enumerate(calls)
            ],
        )

    def reason(self, delta: Delta) -> ChatFinishReason | None:
        """Why it ended, if it did: with calls, unless the last one is incomplete."""
        if delta.finish_reason == "stop" and self._parser.has_whole_calls:
            return "tool_calls"
        return delta.finish_reason

    def _events(self, delta: Delta) -> Iterator[ToolEvent]:
        events = self._parser.feed(delta.text)
        if delta.finish_reason is not None:
            events += self._parser.end()
        for event in events:
            self._num_calls += isinstance(event, CallBegin)
            if isinstance(event, Text) or self._num_calls == 1 or not self._reading.is_single:
                yield event

    def _added(self, event: ToolEvent) -> ChatDelta:
        if isinstance(event, Text):
            return ChatDelta(content=event.text)
        number = self._num_calls - 1
        if isinstance(event, Arguments):
            return ChatDelta(tool_calls=[ToolCallDelta(index=number, function=FunctionDelta(arguments=event.text))])
        begin = ToolCallDelta(
            index=number,
            id=self._id(number, event.name),
            type="function",
            function=FunctionDelta(name=event.name, arguments=""),
        )
        return ChatDelta(tool_calls=[begin])

    def _id(self, number: int, name: str) -> str:
        if self._reading.notation.has_numbered_ids:
            return self._reading.notation.numbered_id(name, self._reading.num_earlier + number)
        digest = hashlib.sha256(f"{self._seed}/{number}".encode()).hexdigest()
        exact = self._reading.notation.id_characters
        return digest[:exact] if exact else f"call_{digest[:ID_CHARACTERS]}"
