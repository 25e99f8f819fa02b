"""Anthropic's message batches in the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.anthropic.batch_results import MessageBatchResult
from gateway.anthropic.batches import MessageBatch, MessageBatchList, MessageBatchRemoved
from gateway.document.batch_paths import BUSY, GONE, NO_SERVICE, one_of, query
from gateway.document.operations import KEYED, REFUSED, SCHEMAS, json_of, operation
from gateway.endpoints.stored.message_batches import BATCHES_A_PAGE, MAX_BATCHES_A_PAGE, RESULTS_TYPE

MESSAGE_BATCH_ANSWERS: list[type[msgspec.Struct]] = [
    MessageBatch,
    MessageBatchList,
    MessageBatchRemoved,
    MessageBatchResult,
]

_ERROR = "MessagesError"
_REQUEST = {
    "type": "object",
    "required": ["custom_id", "params"],
    "additionalProperties": False,
    "properties": {
        "custom_id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "params": {"$ref": f"{SCHEMAS}MessagesRequest"},
    },
}
_REQUESTS = {
    "type": "object",
    "required": ["requests"],
    "additionalProperties": False,
    "properties": {"requests": {"type": "array", "minItems": 1, "items": _REQUEST}},
}
_PLACE = {"type": "string", "maxLength": 64}


def message_batch_paths() -> dict[str, Any]:
    """By path."""
    refused = {status: REFUSED[status] for status in (400, 408, 413, 415)}
    not_allowed = {403: "This key may not ask for answers within a day, or its tenant's files take all their room"}
    made = operation("Begin a message batch", json_of("MessageBatch"), KEYED | refused | not_allowed, BUSY, _ERROR)
    made |= {"requestBody": {"required": True, "content": {"application/json": {"schema": _REQUESTS}}}}
    results = {RESULTS_TYPE: {"schema": {"$ref": f"{SCHEMAS}MessageBatchResult"}}}
    early = {409: "The batch has not ended"}
    late = {409: "The batch has ended, or is about to"}
    return {
        "/v1/messages/batches": {"post": made, "get": _list()},
        "/v1/messages/batches/{batch}": {
            "get": _one("Show a message batch", json_of("MessageBatch")),
            "delete": _one("Remove a message batch", json_of("MessageBatchRemoved"), early),
        },
        "/v1/messages/batches/{batch}/cancel": {
            "post": _one("Cancel a message batch", json_of("MessageBatch"), late),
        },
        "/v1/messages/batches/{batch}/results": {
            "get": _one("Read the results of a message batch, a line a request", results, early, BUSY),
        },
    }


def _one(
    summary: str, content: dict[str, Any], refused: dict[int, str] | None = None, dropped: dict[int, str] = NO_SERVICE
) -> dict[str, Any]:
    return one_of("batch", operation(summary, content, KEYED | GONE | (refused or {}), dropped, _ERROR))


def _list() -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_BATCHES_A_PAGE, "default": BATCHES_A_PAGE}
    parameters = [query("limit", limit), query("after_id", _PLACE), query("before_id", _PLACE)]
    listed = operation(
        "List message batches", json_of("MessageBatchList"), KEYED | {400: REFUSED[400]}, NO_SERVICE, _ERROR
    )
    return listed | {"parameters": parameters}
