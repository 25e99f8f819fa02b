"""Turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, TypeAdapter

from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject, FieldConflictError, MissingFieldError
from gateway.openai.requests.tools import MAX_CALLS, CallId, TurnCall


class TextPart(ApiObject):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


class ImageUrl(ApiObject):
    """Where an image is: in the address itself."""

    url: str
    """``data:image/png;base64,…``; nothing is fetched from elsewhere."""
    detail: Literal["auto", "low", "high"] = "auto"
    """Taken and not used: models have one way to read an image."""


class ImagePart(ApiObject):
    """An image in a message's content."""

    type: Literal["image_url"]
    image_url: ImageUrl


_PARTS: TypeAdapter[list[TextPart | ImagePart]] = TypeAdapter(
    list[Annotated[TextPart | ImagePart, one_of("type", TextPart, ImagePart)]]
)


def _read(content: Any) -> str | list[TextPart | ImagePart]:
    """Parts that are all texts as one; those with images as they are."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("it is a text, or a list of parts")
    for number, part in enumerate(content):
        is_text = isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        is_image = isinstance(part, ImagePart) or (isinstance(part, dict) and part.get("type") == "image_url")
        if not (is_text or is_image or isinstance(part, TextPart)):
            raise ValueError(
                f"part {number} is no text part and no image: "
                "{'type': 'text', 'text': …} and {'type': 'image_url', 'image_url': {'url': 'data:…'}} are supported"
            )
    parts = _PARTS.validate_python(content)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "".join(texts) if len(texts) == len(parts) else parts


Content = Annotated[
    str | list[TextPart | ImagePart],
    PlainValidator(_read, json_schema_input_type=str | list[TextPart | ImagePart]),
]


class ChatMessage(ApiObject):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    """May be left out by an assistant that calls functions."""
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[TurnCall], Field(max_length=MAX_CALLS)] = Field(default_factory=list)
    """What the assistant has called."""
    tool_call_id: CallId | None = None
    """Of the call whose result it is, in a turn of a tool."""
    reasoning_content: str | None = None
    """What the assistant thought before it said this, for chat templates that use it."""

    @property
    def text(self) -> str:
        """Its content; ``""`` where there is none. Of a content with images, what is said around them."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def images(self) -> list[tuple[int, ImagePart]]:
        """Its images, each with its place among its parts."""
        parts = self.content if isinstance(self.content, list) else []
        return [(place, part) for place, part in enumerate(parts) if isinstance(part, ImagePart)]

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
        if message.images and message.role != "user":
            raise FieldConflictError(f"{field}.content", "images belong to messages of role 'user'")
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
