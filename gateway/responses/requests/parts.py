"""Parts of an item's text, as clients write them and as answers have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject

_NOT_HERE = frozenset({"input_image", "input_file", "input_audio"})
"""Kinds of OpenAI's that no model here can be told of."""


class _Part(ApiObject):
    # an answer's part may be sent back as it came, with annotations and whatever else: the text is all that counts
    model_config = ConfigDict(extra="ignore")


class ItemTextPart(_Part):
    """A piece of what is said or thought."""

    type: Literal["input_text", "output_text", "reasoning_text", "summary_text"]
    text: str


class RefusalPart(_Part):
    """Why an assistant did not answer; the model reads it like a text."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """See `ItemTextPart`."""
        return self.refusal


class InputImagePart(_Part):
    """An image, in the address itself."""

    type: Literal["input_image"]
    image_url: str
    """``data:image/png;base64,…``; nothing is fetched from elsewhere."""
    detail: Literal["auto", "low", "high"] = "auto"
    """Taken and not used."""


def _refused(kind: str) -> str:
    """Only words of OpenAI's are repeated: what else a client wrote may be long."""
    return f"parts of type {kind!r} are not supported" if kind in _NOT_HERE else ""


def _as_parts(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    if not isinstance(content, list):
        raise ValueError("it is a text, or a list of parts")
    return content


TextParts = Annotated[
    list[Annotated[ItemTextPart | RefusalPart, one_of("type", ItemTextPart, RefusalPart, refused=_refused)]],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ItemTextPart | RefusalPart]),
]
"""A text, or parts of one, which are joined."""


MessageParts = Annotated[
    list[
        Annotated[
            ItemTextPart | RefusalPart | InputImagePart,
            one_of("type", ItemTextPart, RefusalPart, InputImagePart, refused=_refused),
        ]
    ],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ItemTextPart | RefusalPart | InputImagePart]),
]
"""The same, and images among them."""


def chat_content(parts: Sequence[ItemTextPart | RefusalPart | InputImagePart]) -> str | list[dict[str, Any]]:
    """What they are in a chat; parts with images keep their places."""
    if not any(isinstance(part, InputImagePart) for part in parts):
        return joined(part for part in parts if not isinstance(part, InputImagePart))
    return [
        {"type": "image_url", "image_url": {"url": part.image_url}}
        if isinstance(part, InputImagePart)
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def joined(parts: Iterable[ItemTextPart | RefusalPart]) -> str:
    """The text that they are parts of."""
    return "".join(part.text for part in parts)
