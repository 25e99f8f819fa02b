"""Turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gateway.openai.part import ApiObject, FieldConflictError, MissingFieldError
from gateway.openai.tools import MAX_CALLS, CallId, TurnCall


class TextPart(ApiObject):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


def _joined(content: Any) -> Any:
    """Text parts as one string; every other shape is left for the field's own type to refuse."""
    if not isinstance(content, list):
        return content
    texts = []
    for number, part in enumerate(content):
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError(f"part {number} is no text part; only {{'type': 'text', 'text': …}} is supported")
        texts.append(part["text"])
    return "".join(texts)


Content = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[TextPart])]


class ChatMessage(ApiObject):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    """May be left out by an assistant who calls functions."""
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[TurnCall], Field(max_length=MAX_CALLS)] = Field(default_factory=list)
    """What the assistant has called."""
    tool_call_id: CallId | None = None
    """Of the call whose result it is, in a turn of a tool."""
    reasoning_content: str | None = None
    """What the assistant thought before it said this, for chat templates that use it."""

    @property
    def text(self) -> str:
        """Its content; ``""`` where there is none."""
        return self.content or ""

    @property
    def num_characters(self) -> int:
        """Of all that the model is told of it."""
        return (
            len(self.text)
            + len(self.reasoning_content or "")
            + sum(len(call.function.name) + len(call.function.arguments) for call in self.tool_calls)
        )


def check_turns(messages: Sequence[ChatMessage]) -> None:
    """What the role of each says about its other fields; `FieldConflictError`, `MissingFieldError`."""
    for number, message in enumerate(messages):
        field = f"messages[{number}]"
        if message.tool_calls and message.role != "assistant":
            raise FieldConflictError(f"{field}.tool_calls", "tool_calls are the assistant's")
        if message.reasoning_content is not None and message.role != "assistant":
            raise FieldConflictError(f"{field}.reasoning_content", "reasoning_content is the assistant's")
        if message.tool_call_id is not None and message.role != "tool":
            raise FieldConflictError(f"{field}.tool_call_id", "tool_call_id belongs to a message of role 'tool'")
        if message.tool_call_id is None and message.role == "tool":
            raise MissingFieldError(f"{field}.tool_call_id")
        if message.content is None and not message.tool_calls:
            raise MissingFieldError(f"{field}.content")
