"""Items of a conversation as the Responses API has them: messages, calls, their results, and thoughts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gateway.openai.part import ApiObject, FieldConflictError, MissingFieldError
from gateway.openai.tools import CallArguments, CallId, FunctionName

MAX_ITEM_ID_CHARACTERS = 256

_TEXT_PARTS = {
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
"""Kinds of parts, each with the field that has its text."""


class ItemPart(ApiObject):
    """A piece of an item's text; what an answer's parts have beside it may be sent back, and is not used."""

    type: Literal["input_text", "output_text", "reasoning_text", "summary_text", "refusal"]
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


def _joined(content: Any) -> Any:
    """Text parts as one string; every other shape is left for the field's own type to refuse."""
    if not isinstance(content, list):
        return content
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
        if field is None or not isinstance(part.get(field), str):
            raise ValueError(f"part {number} is no text part; only {{'type': 'input_text', 'text': …}} is supported")
        texts.append(part[field])
    return "".join(texts)


ItemText = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[ItemPart])]

_NEEDED: dict[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "message": ("phase",),
    "function_call": (),
    "function_call_output": (),
    "reasoning": ("content", "summary", "encrypted_content"),
}
_OF_ALL = ("type", "id", "status")


class InputItem(ApiObject):
    """One item; its type says which fields it has. ``id``, ``status`` and ``phase`` are taken and not used."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    id: Annotated[str, Field(max_length=MAX_ITEM_ID_CHARACTERS)] | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: ItemText | None = None
    """Of a message or of thoughts; may be in parts."""
    phase: Literal["commentary", "final_answer"] | None = None
    call_id: CallId | None = None
    name: FunctionName | None = None
    """Of the function that was called."""
    arguments: CallArguments | None = None
    output: ItemText | None = None
    """What a call has given."""
    summary: ItemText | None = None
    """Of thoughts, where there is no ``content``."""
    encrypted_content: str | None = None
    """Taken and not used: what another server keeps secret says nothing here."""

    @property
    def text(self) -> str:
        """What it says; ``""`` where it says nothing."""
        return (self.output if self.type == "function_call_output" else self.content or self.summary) or ""


def check_item(item: InputItem, field: str) -> None:
    """`MissingFieldError`, `FieldConflictError` where its fields are not those of its type; ``field`` names it."""
    needed = _NEEDED[item.type]
    for name in needed:
        if getattr(item, name) is None:
            raise MissingFieldError(f"{field}.{name}")
    allowed = {*needed, *_OPTIONAL[item.type], *_OF_ALL}
    for name in type(item).model_fields:
        if name in item.model_fields_set and name not in allowed:
            raise FieldConflictError(f"{field}.{name}", f"an item of type {item.type!r} has no {name!r}")
