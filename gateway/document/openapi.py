"""The OpenAPI document, generated from the types that requests are validated with and answers are written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.anthropic.answers import MESSAGE_EVENTS, MessageAnswer, TokenCount
from gateway.document.request_schemas import request_schemas
from gateway.http.anthropic_errors import MessagesError
from gateway.openai.answers import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    ErrorAnswer,
    ModelCard,
    ModelList,
    Version,
)
from gateway.openai.errors import DROPPED_REASON_HEADER
from gateway.openai.queue_answers import QueueReport
from gateway.openai.tokenize import DetokenizeAnswer, TokenizeAnswer
from gateway.responses.answer import ResponseAnswer
from gateway.responses.events import STREAM_EVENTS
from gateway.tenants.auth import KEY_HEADER

_ANSWERS: list[type[msgspec.Struct]] = [ChatCompletion, ChatCompletionChunk, Completion, ResponseAnswer, ErrorAnswer]
_ANSWERS += [ModelCard, ModelList, QueueReport, TokenizeAnswer, DetokenizeAnswer, Version]
_ANSWERS += [MessageAnswer, MessagesError, TokenCount]
_SCHEMAS = "#/components/schemas/"
_ERROR = "ErrorAnswer"
_KEY_SCHEMES = {
    "securitySchemes": {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
    }
}
_DROPPED = {
    429: "No room here, too late by prediction for a class that would rather know, or waited for as long as it may",
    503: "No node can serve the model, the queue cannot be reached, or the gateway is about to stop",
}
_REFUSED = {
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
_KEYED = {401: _REFUSED[401], 500: _REFUSED[500]}


def openapi_document(version: str, *, has_keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1 for the paths that clients use; ``has_keys``: they need one."""
    _, answers = msgspec.json.schema_components(
        [*_ANSWERS, *STREAM_EVENTS, *MESSAGE_EVENTS], ref_template=_SCHEMAS + "{name}"
    )
    answers["ResponseStreamEvent"] = _any_of(STREAM_EVENTS)
    answers["MessageStreamEvent"] = _any_of(MESSAGE_EVENTS)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Treadle", "version": version},
        "paths": _paths(),
        "components": {"schemas": request_schemas(_SCHEMAS + "{model}") | answers} | (_KEY_SCHEMES if has_keys else {}),
        "security": [{"key": []}, {"header": []}] if has_keys else [],
    }


def _paths() -> dict[str, Any]:
    chat = _post("Answer a chat", "ChatCompletionRequest", _streamed("ChatCompletion", "ChatCompletionChunk"))
    model = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    show = _operation("Show a model", _json("ModelCard"), _KEYED | {404: _REFUSED[404]})
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {
            "post": _post("Continue a text", "CompletionRequest", _streamed("Completion", "Completion"))
        },
        "/v1/responses": {
            "post": _post(
                "Answer a conversation", "ResponsesRequest", _streamed("ResponseAnswer", "ResponseStreamEvent")
            )
        },
        "/v1/messages": {
            "post": _post(
                "Answer a conversation, as Anthropic's API does",
                "MessagesRequest",
                _streamed("MessageAnswer", "MessageStreamEvent"),
                "MessagesError",
            )
        },
        "/v1/messages/count_tokens": {
            "post": _counted("Count the tokens of a conversation", "CountTokensRequest", "TokenCount", "MessagesError")
        },
        "/v1/queue": {"get": _operation("Show how long requests wait", _json("QueueReport"), _KEYED)},
        "/v1/models": {"get": _operation("List the models", _json("ModelList"), _KEYED)},
        "/v1/models/{name}": {"get": show | {"parameters": [model]}},
        "/tokenize": {"post": _counted("Tokenise a text or a conversation", "TokenizeRequest", "TokenizeAnswer")},
        "/detokenize": {"post": _counted("Show the text of tokens", "DetokenizeRequest", "DetokenizeAnswer")},
        "/health": {"get": _probe("Ask whether requests are taken, as vLLM is asked", {}, 503)},
        "/healthz": {"get": _probe("Ask whether the process lives", _TEXT)},
        "/readyz": {"get": _probe("Ask whether requests are taken, and why they are not", _TEXT, 503)},
        "/version": {"get": _probe("Show the version", _json("Version"))},
    }


def _any_of(events: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    return {"anyOf": [{"$ref": _SCHEMAS + event.__name__} for event in events]}


def _post(summary: str, body: str, content: dict[str, Any], error: str = _ERROR) -> dict[str, Any]:
    return _operation(summary, content, _REFUSED | _NOT_ALLOWED, _DROPPED, error) | _takes(body)


def _counted(summary: str, body: str, answer: str, error: str = _ERROR) -> dict[str, Any]:
    return _operation(summary, _json(answer), _REFUSED, _NO_ROOM, error) | _takes(body)


def _takes(body: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _json(body)}}


def _operation(
    summary: str,
    content: dict[str, Any],
    refused: Mapping[int, str],
    dropped: Mapping[int, str] = MappingProxyType({}),
    error: str = _ERROR,
) -> dict[str, Any]:
    """``refused`` and ``dropped`` (come again later): what it means, by status; ``error``: the shape of both."""
    refusals = {status: {"description": text, "content": _json(error)} for status, text in refused.items()}
    refusals |= {status: _drop(text, error) for status, text in dropped.items()}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer", "content": content},
            **{str(status): refusals[status] for status in sorted(refusals)},
        },
    }


def _probe(summary: str, content: dict[str, Any], *refusals: int) -> dict[str, Any]:
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
    return {"description": description, "headers": headers, "content": _json(error)}


def _streamed(answer: str, chunk: str) -> dict[str, Any]:
    return _json(answer) | {"text/event-stream": {"schema": {"$ref": _SCHEMAS + chunk}}}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMAS + schema}}}


_TEXT = {"text/plain": {"schema": {"type": "string"}}}
