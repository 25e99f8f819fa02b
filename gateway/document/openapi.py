"""The OpenAPI document, generated from the types that requests are validated with and answers are written from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.anthropic.answers import MESSAGE_EVENTS, MessageAnswer, TokenCount
from gateway.document.batch_paths import BATCH_ANSWERS, batch_paths
from gateway.document.kept_response_paths import KEPT_RESPONSE_ANSWERS, kept_response_paths
from gateway.document.message_batch_paths import MESSAGE_BATCH_ANSWERS, message_batch_paths
from gateway.document.operations import (
    KEYED,
    REFUSED,
    SCHEMAS,
    TEXT,
    counted,
    json_of,
    operation,
    post,
    probe,
    streamed,
)
from gateway.document.request_schemas import request_schemas
from gateway.http.anthropic_errors import MessagesError
from gateway.openai.answers.answers import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    ErrorAnswer,
    ModelCard,
    ModelList,
    Version,
)
from gateway.openai.answers.queue_answers import QueueReport
from gateway.openai.pooled.classes import ClassificationList
from gateway.openai.pooled.embeddings import EmbeddingList
from gateway.openai.pooled.scores import RerankAnswer, ScoreList
from gateway.openai.tokenize import DetokenizeAnswer, TokenizeAnswer
from gateway.responses.answer import ResponseAnswer
from gateway.responses.rendering.events import STREAM_EVENTS
from gateway.tenants.auth import KEY_HEADER

_ANSWERS: list[type[msgspec.Struct]] = [ChatCompletion, ChatCompletionChunk, Completion, ResponseAnswer, ErrorAnswer]
_ANSWERS += [ModelCard, ModelList, QueueReport, TokenizeAnswer, DetokenizeAnswer, Version]
_ANSWERS += [MessageAnswer, MessagesError, TokenCount, EmbeddingList, RerankAnswer, ScoreList, ClassificationList]
RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")
"""Those of Jina's and vLLM's clients, of Cohere's, and of either's without a version."""
SCORE_PATHS = ("/v1/score", "/score")
CLASSIFY_PATHS = ("/v1/classify", "/classify")
"""Those of SGLang's clients, and of vLLM's."""
_KEY_SCHEMES = {
    "securitySchemes": {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
    }
}


def openapi_document(version: str, *, has_keys: bool, has_batches: bool = False) -> dict[str, Any]:
    """OpenAPI 3.1 for the paths that clients use; ``has_keys``: they need one."""
    _, answers = msgspec.json.schema_components(
        [*_ANSWERS, *KEPT_RESPONSE_ANSWERS, *BATCH_ANSWERS, *MESSAGE_BATCH_ANSWERS, *STREAM_EVENTS, *MESSAGE_EVENTS],
        ref_template=SCHEMAS + "{name}",
    )
    answers["ResponseStreamEvent"] = _any_of(STREAM_EVENTS)
    answers["MessageStreamEvent"] = _any_of(MESSAGE_EVENTS)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Treadle", "version": version},
        "paths": _paths() | (batch_paths() | message_batch_paths() if has_batches else {}),
        "components": {"schemas": request_schemas(SCHEMAS + "{model}") | answers} | (_KEY_SCHEMES if has_keys else {}),
        "security": [{"key": []}, {"header": []}] if has_keys else [],
    }


def _paths() -> dict[str, Any]:
    chat = post("Answer a chat", "ChatCompletionRequest", streamed("ChatCompletion", "ChatCompletionChunk"))
    model = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    rerank = post("Rank documents by a query", "RerankRequest", json_of("RerankAnswer"))
    score = post("Score documents by queries", "ScoreRequest", json_of("ScoreList"))
    classify = post("Classify texts", "ClassifyRequest", json_of("ClassificationList"))
    show = operation("Show a model", json_of("ModelCard"), KEYED | {404: REFUSED[404]})
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {"post": post("Continue a text", "CompletionRequest", streamed("Completion", "Completion"))},
        "/v1/embeddings": {"post": post("Embed texts", "EmbeddingRequest", json_of("EmbeddingList"))},
        **{path: {"post": rerank} for path in RERANK_PATHS},
        **{path: {"post": score} for path in SCORE_PATHS},
        **{path: {"post": classify} for path in CLASSIFY_PATHS},
        "/v1/responses": {
            "post": post("Answer a conversation", "ResponsesRequest", streamed("ResponseAnswer", "ResponseStreamEvent"))
        },
        **kept_response_paths(),
        "/v1/messages": {
            "post": post(
                "Answer a conversation, as Anthropic's API does",
                "MessagesRequest",
                streamed("MessageAnswer", "MessageStreamEvent"),
                "MessagesError",
            )
        },
        "/v1/messages/count_tokens": {
            "post": counted("Count the tokens of a conversation", "CountTokensRequest", "TokenCount", "MessagesError")
        },
        "/v1/queue": {"get": operation("Show how long requests wait", json_of("QueueReport"), KEYED)},
        "/v1/models": {"get": operation("List the models", json_of("ModelList"), KEYED)},
        "/v1/models/{name}": {"get": show | {"parameters": [model]}},
        "/tokenize": {"post": counted("Tokenise a text or a conversation", "TokenizeRequest", "TokenizeAnswer")},
        "/detokenize": {"post": counted("Show the text of tokens", "DetokenizeRequest", "DetokenizeAnswer")},
        "/health": {"get": probe("Ask whether requests are taken, as vLLM is asked", {}, 503)},
        "/healthz": {"get": probe("Ask whether the process lives", TEXT)},
        "/readyz": {"get": probe("Ask whether requests are taken, and why they are not", TEXT, 503)},
        "/version": {"get": probe("Show the version", json_of("Version"))},
    }


def _any_of(events: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    return {"anyOf": [{"$ref": SCHEMAS + event.__name__} for event in events]}
