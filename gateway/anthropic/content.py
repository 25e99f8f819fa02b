"""What turns are made of: blocks of text, of thoughts, of calls and of their results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.tools import CallId, FunctionName, shallow

_NOT_HERE = frozenset({"image", "document", "search_result", "tool_reference", "container_upload", "compaction"})
"""Kinds of Anthropic's that no model here can be told of; beside those of tools that run at the server."""


class CacheControl(ApiObject):
    """Where a beginning is to be kept for later requests. Taken and not used: all beginnings are."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


def _no_source(kind: str) -> str:
    return "images are taken inline alone, as 'base64': nothing is fetched" if kind in ("url", "file") else ""


class TextBlock(ApiObject):
    """A text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None


class ImageSource(ApiObject):
    """Where an image is."""

    type: Literal["base64"]
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    data: str
    """Its file in base64."""


class ImageBlock(ApiObject):
    """An image, in the request itself: nothing is fetched from elsewhere."""

    type: Literal["image"]
    source: Annotated[ImageSource, one_of("type", ImageSource, refused=_no_source)]
    cache_control: CacheControl | None = None

    @property
    def url(self) -> str:
        """As chats have it."""
        return f"data:{self.source.media_type};base64,{self.source.data}"


class ThinkingBlock(ApiObject):
    """What the assistant thought, as an answer had it; for chat templates that use it."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""
    """Taken and not looked at."""


class RedactedThinkingBlock(ApiObject):
    """Thoughts that only Anthropic can read: taken and left out."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(ApiObject):
    """A call in a turn of the assistant."""

    type: Literal["tool_use"]
    id: CallId
    name: FunctionName
    input: Annotated[dict[str, Any], AfterValidator(shallow)]
    cache_control: CacheControl | None = None


def _refused(kind: str) -> str:
    """Only words of Anthropic's are repeated: what else a client wrote may be long."""
    is_known = kind in _NOT_HERE or (kind.startswith(("server_tool", "mcp_tool", "web_")) and len(kind) < 64)
    return f"blocks of type {kind!r} are not supported" if is_known else ""


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Texts = Annotated[
    list[Annotated[TextBlock, one_of("type", TextBlock, refused=_refused)]],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[TextBlock]),
]
"""A text, or blocks of text, which are joined."""


class ToolResultBlock(ApiObject):
    """What a call gave, in a turn of the user."""

    type: Literal["tool_result"]
    tool_use_id: CallId
    content: Texts = Field(default_factory=list)
    is_error: bool = False
    """The model is told so: the text begins with ``Error: ``."""
    cache_control: CacheControl | None = None


UserBlock = TextBlock | ImageBlock | ToolResultBlock
AssistantBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock

_OfUser = Annotated[UserBlock, one_of("type", TextBlock, ImageBlock, ToolResultBlock, refused=_refused)]
_OfAssistant = Annotated[
    AssistantBlock, one_of("type", TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock, refused=_refused)
]


class UserTurn(ApiObject):
    """A turn of the user."""

    role: Literal["user"]
    content: Annotated[
        list[_OfUser],
        Field(fail_fast=True),
        BeforeValidator(_as_blocks, json_schema_input_type=str | list[UserBlock]),
    ]
    """A text, or blocks."""


class AssistantTurn(ApiObject):
    """A turn of the assistant, as an answer had it."""

    role: Literal["assistant"]
    content: Annotated[
        list[_OfAssistant],
        Field(fail_fast=True),
        BeforeValidator(_as_blocks, json_schema_input_type=str | list[AssistantBlock]),
    ]
    """A text, or blocks."""


def _no_turn(role: str) -> str:
    return "the system's text goes into system" if role == "system" else ""


Turn = Annotated[UserTurn | AssistantTurn, one_of("role", UserTurn, AssistantTurn, refused=_no_turn)]
