"""Answers that are kept, in the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.document.batch_paths import query
from gateway.document.operations import KEYED, REFUSED, json_of, operation
from gateway.endpoints.stored.kept_responses import ITEMS_A_PAGE, MAX_ITEMS_A_PAGE
from gateway.responses.answer import DeletedResponse, InputItemList

KEPT_RESPONSE_ANSWERS: list[type[msgspec.Struct]] = [InputItemList, DeletedResponse]

_ID = {"name": "response", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_PAGE = [
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS_A_PAGE, "default": ITEMS_A_PAGE}),
    query("order", {"enum": ["asc", "desc"], "default": "desc"}),
    query("after", {"type": "string", "maxLength": 64}),
]


def kept_response_paths() -> dict[str, Any]:
    """By path."""
    return {
        "/v1/responses/{response}": {
            "get": _operation("Show a response that is kept", "ResponseAnswer"),
            "delete": _operation("Keep a response no longer", "DeletedResponse"),
        },
        "/v1/responses/{response}/input_items": {
            "get": _operation("Show what was said before a response", "InputItemList", *_PAGE),
        },
    }


def _operation(summary: str, answer: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    refused = KEYED | {400: REFUSED[400], 404: "No such response is kept, or none of this tenant"}
    found = operation(summary, json_of(answer), refused, {503: "The queue cannot be reached"})
    return found | {"parameters": [_ID, *parameters]}
