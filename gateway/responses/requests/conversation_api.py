"""The Conversations API: what is asked and answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BeforeValidator, Field

from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.schema import Metadata
from gateway.responses.requests.items import GivenItem, InputItem

MAX_ITEMS_A_CALL = 20  # as OpenAI has it


def _as_list(value: Any) -> Any:
    """Checked here, so that a fault is told of the field."""
    if not isinstance(value, list):
        raise ValueError("it is a list of items")
    return value


GivenItems = Annotated[
    list[GivenItem],
    Field(max_length=MAX_ITEMS_A_CALL, fail_fast=True),
    BeforeValidator(_as_list, json_schema_input_type=list[InputItem]),
]


class ConversationRequest(ApiObject):
    """The body of ``POST /v1/conversations``."""

    items: GivenItems = Field(default_factory=list)
    """Its first ones."""
    metadata: Metadata | None = None
    """Told again."""


class ConversationUpdate(ApiObject):
    """The body of ``POST /v1/conversations/{conversation}``."""

    metadata: Metadata
    """In the place of what it has."""


class ConversationItemsRequest(ApiObject):
    """The body of ``POST /v1/conversations/{conversation}/items``."""

    items: Annotated[GivenItems, Field(min_length=1)]
    """They become its last ones."""


class ConversationAnswer(Struct, frozen=True, kw_only=True):
    """A conversation, without its items."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Struct, frozen=True, kw_only=True):
    """Answer to its removal."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True
