"""The OpenAPI document, generated from the types that requests are validated with and answers are written from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic.json_schema import models_json_schema

from gateway.errors import DROPPED_REASON_HEADER
from gateway.openai_responses import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    ErrorAnswer,
    ModelCard,
    ModelList,
)
from gateway.openai_schema import ChatCompletionRequest, CompletionRequest
from gateway.queue_answers import QueueReport

_ANSWERS = (ChatCompletion, ChatCompletionChunk, Completion, ErrorAnswer, ModelCard, ModelList, QueueReport)
_SCHEMAS = "#/components/schemas/"
_KEY_SCHEMES = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
_DROPPED = {
    429: "No room here, too late by prediction for a class that would rather know, or waited for as long as it may",
    503: "No node can serve the model, the queue cannot be reached, or the gateway is about to stop",
}


def openapi_document(version: str, *, has_keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1 for the paths that clients use; ``has_keys``: they need one."""
    requests = models_json_schema(
        [(ChatCompletionRequest, "validation"), (CompletionRequest, "validation")], ref_template=_SCHEMAS + "{model}"
    )[1]["$defs"]
    _, answers = msgspec.json.schema_components(_ANSWERS, ref_template=_SCHEMAS + "{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Treadle", "version": version},
        "paths": {
            "/v1/chat/completions": {
                "post": _post("Answer a conversation", "ChatCompletionRequest", "ChatCompletion", "ChatCompletionChunk")
            },
            "/v1/completions": {"post": _post("Continue a text", "CompletionRequest", "Completion", "Completion")},
            "/v1/queue": {"get": _operation("Show how long requests wait", _json("QueueReport"))},
            "/v1/models": {"get": _operation("List the models", _json("ModelList"))},
            "/v1/models/{name}": {
                "get": _operation("Show a model", _json("ModelCard"))
                | {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
            },
        },
        "components": {"schemas": requests | answers} | (_KEY_SCHEMES if has_keys else {}),
        "security": [{"key": []}] if has_keys else [],
    }


def _post(summary: str, body: str, answer: str, chunk: str) -> dict[str, Any]:
    content = _json(answer) | {"text/event-stream": {"schema": {"$ref": _SCHEMAS + chunk}}}
    return _operation(summary, content, _DROPPED) | {"requestBody": {"required": True, "content": _json(body)}}


def _operation(
    summary: str, content: dict[str, Any], dropped: Mapping[int, str] = MappingProxyType({})
) -> dict[str, Any]:
    """``dropped``: what it means to be told to come again later, by status."""
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer", "content": content},
            **{str(status): _refusal(description) for status, description in dropped.items()},
            "default": {"description": "Anything else", "content": _json("ErrorAnswer")},
        },
    }


def _refusal(description: str) -> dict[str, Any]:
    headers = {
        "Retry-After": {"description": "Seconds, predicted where that is possible", "schema": {"type": "integer"}},
        DROPPED_REASON_HEADER: {"description": "For programs", "schema": {"type": "string"}},
    }
    return {"description": description, "headers": headers, "content": _json("ErrorAnswer")}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMAS + schema}}}
