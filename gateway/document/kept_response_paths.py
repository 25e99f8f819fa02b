"""Answers that are kept, responses in the background and conversations, in the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.document.batch_paths import query
from gateway.document.operations import KEYED, REFUSED, json_of, operation, streamed, takes
from gateway.endpoints.stored.kept_responses import ITEMS_A_PAGE, MAX_ITEMS_A_PAGE
from gateway.responses.answer import DeletedResponse, InputItemList
from gateway.responses.requests.conversation_api import ConversationAnswer, DeletedConversation

KEPT_RESPONSE_ANSWERS: list[type[msgspec.Struct]] = [
    InputItemList,
    DeletedResponse,
    ConversationAnswer,
    DeletedConversation,
]

_PAGE = [
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS_A_PAGE, "default": ITEMS_A_PAGE}),
    query("order", {"enum": ["asc", "desc"], "default": "desc"}),
    query("after", {"type": "string", "maxLength": 64}),
]
_STREAM = [
    query("stream", {"type": "boolean", "default": False}),
    query("starting_after", {"type": "integer", "minimum": 0}),
    query("include_obfuscation", {"type": "boolean"}),
]
_NO_RESPONSE = {404: "No such response is kept, or none of this tenant"}
_NO_CONVERSATION = {404: "No such conversation or item is kept, or none of this tenant"}
_AWAY = {503: "The queue cannot be reached, or the gateway is about to stop"}
_NO_ROOM = {429: "No room here, or in Redis"}


def kept_response_paths() -> dict[str, Any]:
    """By path."""
    shown, answer = streamed("ResponseAnswer", "ResponseStreamEvent"), json_of("ResponseAnswer")
    return {
        "/v1/responses/{response}": {
            "get": _of_response("Show a response, or read its events again", shown, *_STREAM, dropped=_NO_ROOM),
            "delete": _of_response("Keep a response no longer", json_of("DeletedResponse")),
        },
        "/v1/responses/{response}/cancel": {
            "post": _of_response("End a response in the background", answer, dropped=_NO_ROOM),
        },
        "/v1/responses/{response}/input_items": {
            "get": _of_response("Show what was said before a response", json_of("InputItemList"), *_PAGE),
        },
        **_conversation_paths(),
    }


def _conversation_paths() -> dict[str, Any]:
    one, conversation, items = [_path("conversation")], "ConversationAnswer", "InputItemList"
    item = [*one, _path("item")]
    return {
        "/v1/conversations": {"post": _taking("Begin a conversation", "ConversationRequest", conversation, [])},
        "/v1/conversations/{conversation}": {
            "get": _of_conversation("Show a conversation", conversation, one),
            "post": _taking("Change a conversation's metadata", "ConversationUpdate", conversation, one),
            "delete": _of_conversation("Keep a conversation no longer", "DeletedConversation", one),
        },
        "/v1/conversations/{conversation}/items": {
            "get": _of_conversation("List the items of a conversation", items, [*one, *_PAGE]),
            "post": _taking("Add items to a conversation", "ConversationItemsRequest", items, one),
        },
        "/v1/conversations/{conversation}/items/{item}": {
            "get": _with(operation("Show an item", {"application/json": {"schema": _ITEM}}, _REFUSED, _AWAY), item),
            "delete": _of_conversation("Remove an item", conversation, item, dropped=_NO_ROOM),
        },
    }


def _of_response(
    summary: str, content: dict[str, Any], *parameters: dict[str, Any], dropped: dict[int, str] | None = None
) -> dict[str, Any]:
    refused = KEYED | {400: REFUSED[400]} | _NO_RESPONSE
    return _with(operation(summary, content, refused, (dropped or {}) | _AWAY), [_path("response"), *parameters])


def _of_conversation(
    summary: str, answer: str, parameters: list[dict[str, Any]], dropped: dict[int, str] | None = None
) -> dict[str, Any]:
    return _with(operation(summary, json_of(answer), _REFUSED, (dropped or {}) | _AWAY), parameters)


def _taking(summary: str, body: str, answer: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """With a body."""
    found = operation(summary, json_of(answer), REFUSED | _NO_CONVERSATION, _NO_ROOM | _AWAY)
    return _with(found | takes(body), parameters)


def _with(found: dict[str, Any], parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return found | {"parameters": parameters}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


_REFUSED = KEYED | {400: REFUSED[400]} | _NO_CONVERSATION
_ITEM = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "type": {"type": "string"}},
    "required": ["id", "type"],
}
