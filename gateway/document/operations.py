"""Operations of the OpenAPI document: what a path takes and answers, and how it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from gateway.openai.errors.errors import DROPPED_REASON_HEADER

SCHEMAS = "#/components/schemas/"
_ERROR = "ErrorAnswer"
_DROPPED = {
    429: "No room here, too late by prediction for a class that would rather know, or waited for as long as it may",
    503: "No node can serve the model, the queue cannot be reached, or the gateway is about to stop",
}
REFUSED = {
    400: "The request says what cannot be; ``param`` names the field",
    401: "No key, or a wrong one, where keys are configured",
    404: "There is no such model",
    408: "The body did not come in time",
    413: "The body is too large",
    415: "The body comes in a type, charset or encoding that is not taken",
    500: "Something broke; the log has the reason under the request's id",
}
_NOT_ALLOWED = {403: "This key may not ask for that promise"}
_NO_ROOM = {429: "No room here"}
KEYED = {401: REFUSED[401], 500: REFUSED[500]}


def post(summary: str, body: str, content: dict[str, Any], error: str = _ERROR) -> dict[str, Any]:
    """What is answered by a model: ``content``, from a body."""
    return operation(summary, content, REFUSED | _NOT_ALLOWED, _DROPPED, error) | takes(body)


def counted(summary: str, body: str, answer: str, error: str = _ERROR) -> dict[str, Any]:
    """What is worked out from a body at once."""
    return operation(summary, json_of(answer), REFUSED, _NO_ROOM, error) | takes(body)


def takes(body: str) -> dict[str, Any]:
    """With a body of JSON."""
    return {"requestBody": {"required": True, "content": json_of(body)}}


def operation(
    summary: str,
    content: dict[str, Any],
    refused: Mapping[int, str],
    dropped: Mapping[int, str] = MappingProxyType({}),
    error: str = _ERROR,
) -> dict[str, Any]:
    """``refused`` and ``dropped`` (come again later): what it means, by status; ``error``: the shape of both."""
    refusals = {status: {"description": text, "content": json_of(error)} for status, text in refused.items()}
    refusals |= {status: _drop(text, error) for status, text in dropped.items()}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer", "content": content},
            **{str(status): refusals[status] for status in sorted(refusals)},
        },
    }


def probe(summary: str, content: dict[str, Any], *refusals: int) -> dict[str, Any]:
    """What needs no key."""
    bodies: dict[str, Any] = {"content": content} if content else {}
    return {
        "summary": summary,
        "security": [],
        "responses": {str(status): {"description": HTTPStatus(status).phrase, **bodies} for status in (200, *refusals)},
    }


def _drop(description: str, error: str) -> dict[str, Any]:
    headers = {
        "Retry-After": {"description": "Seconds, predicted where that is possible", "schema": {"type": "integer"}},
        DROPPED_REASON_HEADER: {"description": "For programs", "schema": {"type": "string"}},
    }
    return {"description": description, "headers": headers, "content": json_of(error)}


def streamed(answer: str, chunk: str) -> dict[str, Any]:
    """An answer, or its chunks."""
    return json_of(answer) | {"text/event-stream": {"schema": {"$ref": SCHEMAS + chunk}}}


def json_of(schema: str) -> dict[str, Any]:
    """An answer of this schema."""
    return {"application/json": {"schema": {"$ref": SCHEMAS + schema}}}


TEXT = {"text/plain": {"schema": {"type": "string"}}}
