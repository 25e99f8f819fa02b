"""Schemas of request bodies: what pydantic says of the fields, and what it does not know of our rules for them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.anthropic.requests import UNSUPPORTED, CountTokensRequest, MessagesRequest
from gateway.openai.batches import BatchRequest
from gateway.openai.pooled.classes import ClassifyRequest
from gateway.openai.pooled.embeddings import EmbeddingRequest
from gateway.openai.pooled.scores import RerankRequest, ScoreRequest
from gateway.openai.requests.chat_messages import ChatMessage
from gateway.openai.requests.schema import INERT, ChatCompletionRequest, CompletionRequest
from gateway.openai.requests.structured_output import StructuredOutputs
from gateway.openai.tokenize import DetokenizeRequest, TokenizeRequest
from gateway.responses.requests.request import INERT_FIELDS, ResponsesRequest

NOT_SUPPORTED = "Not supported; these values ask for nothing."

_BODIES: dict[type[BaseModel], list[dict[str, Any]]] = {
    ChatCompletionRequest: [
        {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16},
        {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "slo": {"ttft_s": 2.5},
        },
        {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": "Name a city."}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "city",
                    "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                },
            },
        },
        {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": "What is the weather like in Paris?"}],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "parameters": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    },
                }
            ],
            "tool_choice": "required",
        },
    ],
    CompletionRequest: [
        {"model": "smollm2-135m", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0},
        {"model": "smollm2-135m", "prompt": [[1, 2], [3]], "n": 2, "logprobs": 3, "stop": ["\n"], "slo": "batch"},
        {"model": "smollm2-135m", "prompt": "Is it wet? ", "structured_outputs": {"choice": ["yes", "no"]}},
    ],
    EmbeddingRequest: [
        {"model": "smollm2-135m", "input": "Paris is the capital of France."},
        {
            "model": "smollm2-135m",
            "input": [[1, 2], [3]],
            "encoding_format": "base64",
            "dimensions": 16,
            "slo": "batch",
        },
    ],
    RerankRequest: [
        {"model": "smollm2-135m", "query": "capital of France", "documents": ["Paris is it.", "A pie."]},
        {
            "model": "smollm2-135m",
            "query": "capital of France",
            "documents": [{"text": "Paris is it."}, {"text": "A pie."}],
            "top_n": 1,
            "return_documents": True,
            "max_tokens_per_doc": 8,
            "slo": "batch",
        },
    ],
    ScoreRequest: [
        {"model": "smollm2-135m", "text_1": "capital of France", "text_2": ["Paris is it.", "A pie."]},
        {"model": "smollm2-135m", "text_1": ["a", "b"], "text_2": ["c", "d"], "truncate_prompt_tokens": -1},
    ],
    ClassifyRequest: [
        {"model": "smollm2-135m", "input": "What a wonderful loom!"},
        {"model": "smollm2-135m", "input": ["What a loom!", "It broke."], "slo": {"ttft_s": 2.0}},
    ],
    ResponsesRequest: [
        {"model": "smollm2-135m", "input": "Say hello.", "max_output_tokens": 16},
        {
            "model": "smollm2-135m",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "What is the weather like in Paris?"}]},
                {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "18 degrees and sunny"},
            ],
            "stream": True,
        },
    ],
    MessagesRequest: [
        {"model": "smollm2-135m", "max_tokens": 16, "messages": [{"role": "user", "content": "Say hello."}]},
        {
            "model": "smollm2-135m",
            "max_tokens": 64,
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "What is the weather like in Paris?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "18 degrees and sunny"}],
                },
            ],
            "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}],
            "stream": True,
        },
    ],
    CountTokensRequest: [{"model": "smollm2-135m", "messages": [{"role": "user", "content": "Say hello."}]}],
    TokenizeRequest: [
        {"model": "smollm2-135m", "prompt": "Once upon a time"},
        {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Say hello."}], "return_token_strs": True},
    ],
    DetokenizeRequest: [{"model": "smollm2-135m", "tokens": [1, 2, 3]}],
    BatchRequest: [
        {
            "input_file_id": "file-0123456789abcdef0123456789abcdef",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
    ],
}
"""Each with examples."""

_ONE_OF: dict[type[BaseModel], list[str]] = {
    StructuredOutputs: ["json", "json_object", "regex", "choice", "grammar"],
    TokenizeRequest: ["prompt", "messages"],
}
"""Objects with exactly one of these fields."""

_INERT_OF: dict[type[BaseModel], dict[str, list[Any]]] = {
    ChatCompletionRequest: INERT,
    CompletionRequest: INERT,
    ResponsesRequest: INERT_FIELDS,
    MessagesRequest: UNSUPPORTED,
    CountTokensRequest: UNSUPPORTED,
}
"""Fields of OpenAI's and Anthropic's APIs that a body takes only where they ask for nothing, unless it has them."""


def request_schemas(ref_template: str) -> dict[str, Any]:
    """The schemas of all bodies and of what they are made of, by name."""
    definitions: dict[str, Any] = models_json_schema(
        [(body, "validation") for body in _BODIES], ref_template=ref_template
    )[1]["$defs"]
    for schema in definitions.values():
        _take_null(schema)
    for body, examples in _BODIES.items():
        schema = definitions[body.__name__]
        schema["examples"] = examples
        schema["properties"] |= _inert(body)
    for model, names in _ONE_OF.items():
        definitions[model.__name__]["oneOf"] = [{"required": [name]} for name in names]
    definitions[ChatMessage.__name__]["anyOf"] = [{"required": ["content"]}, {"required": ["tool_calls"]}]
    return definitions


def _take_null(schema: dict[str, Any]) -> None:
    """A field that may be left out may be null: that means the same."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        if name not in required and {"type": "null"} not in field.get("anyOf", []):
            kept = {key: field.pop(key) for key in ("default", "title", "description") if key in field}
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **kept}


def _inert(body: type[BaseModel]) -> dict[str, Any]:
    inert = _INERT_OF.get(body, {})
    names = sorted(inert.keys() - body.model_fields.keys())
    return {name: {"enum": [*inert[name], None], "description": NOT_SUPPORTED} for name in names}
