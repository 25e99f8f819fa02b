"""The gateway's own document, narrowed where most of what it allows could only be refused: models, lengths, sizes."""

from __future__ import annotations

from typing import Any

import requests

from tests.edge.server import MAX_MODEL_LEN

_TIMEOUT_S = 10
_SMALL = MAX_MODEL_LEN // 4
_NULL = {"type": "null"}
_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 262}, "minItems": 1, "maxItems": 8}
_SHORT_TEXT = {"type": "string", "minLength": 1, "maxLength": 8}
_LIMIT = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": _SMALL}, _NULL]}
_FEW = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 3}, _NULL]}
_TEXTS = {"type": "array", "items": _SHORT_TEXT, "minItems": 1, "maxItems": 3}
_DOCUMENT = {
    "type": "object",
    "properties": {"text": _SHORT_TEXT},
    "required": ["text"],
    "additionalProperties": False,
}
_PROMPT = {
    "anyOf": [
        _SHORT_TEXT,
        _TOKEN_IDS,
        _TEXTS,
        {"type": "array", "items": _TOKEN_IDS, "minItems": 1, "maxItems": 3},
    ]
}
_SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "b", None]}}, "required": ["a"]}
_FORMAT = {
    "enum": [
        None,
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}},
    ]
}
_STRUCTURED = {
    "enum": [
        None,
        {"json": _SCHEMA},
        {"json_object": True},
        {"regex": "[a-c]+"},
        {"choice": ["a", "b"]},
        {"grammar": 'start: "a" | "b" start'},
        {"grammar": "start: b"},
    ]
}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
_OTHER_TOOL = {"type": "function", "function": {"name": "g", "description": None, "strict": True}}
_CHOSEN = {"type": "function", "function": {"name": "f"}}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
_TURN: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": _SHORT_TEXT},
            "required": ["role", "content"],
            "additionalProperties": False,
        },
        {"const": {"role": "assistant", "tool_calls": [_CALL]}},
        {"const": {"role": "tool", "tool_call_id": "c", "content": "1"}},
    ]
}
_TALK = {"type": "array", "items": _TURN, "minItems": 1, "maxItems": 2}

_FUNCTION = {"type": "function", "name": "f", "parameters": _SCHEMA}
_CITY = {"type": "json_schema", "name": "n", "schema": _SCHEMA}
_ITEM: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": _SHORT_TEXT},
            "required": ["role", "content"],
            "additionalProperties": False,
        },
        {"const": {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}},
        {"const": {"type": "function_call_output", "call_id": "c", "output": "1"}},
        {"const": {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]}},
    ]
}

_CLIENT_TOOL = {"name": "f", "input_schema": _SCHEMA}
_BLOCKS: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"role": {"const": "user"}, "content": _SHORT_TEXT},
            "required": ["role", "content"],
            "additionalProperties": False,
        },
        {"const": {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": ""}]}},
        {"const": {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]}},
        {"const": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]}},
    ]
}
_CONVERSATION: dict[str, Any] = {
    "model": {"enum": ["tiny", "long"]},
    "messages": {"type": "array", "items": _BLOCKS, "minItems": 1, "maxItems": 2},
    "system": {"enum": [None, "s", [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]]},
    "tools": {"enum": [None, [], [_CLIENT_TOOL], [_CLIENT_TOOL, {"name": "g", "input_schema": {}}]]},
    "tool_choice": {"enum": [None, {"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "f"}]},
    "thinking": {"enum": [None, {"type": "disabled"}, {"type": "adaptive"}]},
    "output_config": {"enum": [None, {"effort": "high"}, {"format": {"type": "json_schema", "schema": _SCHEMA}}]},
}

_NARROWER: dict[str, dict[str, Any]] = {
    "ChatCompletionRequest": {
        "model": {"enum": ["tiny", "long"]},
        "messages": _TALK,
        "response_format": _FORMAT,
        "structured_outputs": _STRUCTURED,
        "tools": {"enum": [None, [], [_TOOL], [_TOOL, _OTHER_TOOL]]},
        "tool_choice": {"enum": [None, "none", "auto", "required", _CHOSEN]},
        "max_tokens": _LIMIT,
        "max_completion_tokens": _LIMIT,
        "n": _FEW,
        "best_of": _FEW,
    },
    "ResponsesRequest": {
        "model": {"enum": ["tiny", "long"]},
        "input": {"anyOf": [_SHORT_TEXT, {"type": "array", "items": _ITEM, "minItems": 1, "maxItems": 3}]},
        "text": {"enum": [None, {"format": {"type": "json_object"}}, {"format": _CITY}, {"verbosity": "medium"}]},
        "tools": {"enum": [None, [], [_FUNCTION], [_FUNCTION, {"type": "function", "name": "g"}]]},
        "tool_choice": {"enum": [None, "none", "auto", "required", {"type": "function", "name": "f"}]},
        "reasoning": {"enum": [None, {}, {"summary": "auto"}]},
        "background": {"enum": [None, False, True]},
        "previous_response_id": {"const": None},
        "conversation": {"const": None},
        "max_output_tokens": _LIMIT,
    },
    "MessagesRequest": {**_CONVERSATION, "max_tokens": _LIMIT["anyOf"][0]},
    "CountTokensRequest": _CONVERSATION,
    "CompletionRequest": {
        "model": {"enum": ["tiny", "base"]},
        "prompt": _PROMPT,
        "response_format": _FORMAT,
        "structured_outputs": _STRUCTURED,
        "max_tokens": _LIMIT,
        "n": _FEW,
        "best_of": _FEW,
    },
    "EmbeddingRequest": {"model": {"const": "texts"}, "input": _PROMPT, "dimensions": _FEW},
    "RerankRequest": {
        "model": {"const": "judge"},
        "query": _SHORT_TEXT,
        "documents": {
            "anyOf": [_TEXTS, {"type": "array", "items": _DOCUMENT, "minItems": 1, "maxItems": 3}],
        },
        "instruction": {"enum": [None, "i"]},
    },
    "ScoreRequest": {
        "model": {"const": "judge"},
        "text_1": _SHORT_TEXT,
        "text_2": {"anyOf": [_SHORT_TEXT, _TEXTS]},
        "instruction": {"enum": [None, "i"]},
    },
    "DetokenizeRequest": {"model": {"enum": ["tiny", "base", "nobody"]}, "tokens": _TOKEN_IDS},
}
"""Of half of the cases: by schema and field. All others keep to the document as it is."""

_NAMES = {"enum": ["tiny", "base"]}
_FLAG = {"type": "boolean"}


def _only(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_EITHER = [
    _only(["model", "prompt"], model=_NAMES, prompt=_SHORT_TEXT, add_special_tokens=_FLAG, return_token_strs=_FLAG),
    _only(
        ["model", "messages"],
        model={"enum": ["tiny", "long"]},
        messages=_TALK,
        tools={"enum": [None, [], [_TOOL, _OTHER_TOOL]]},
        add_generation_prompt=_FLAG,
        return_token_strs=_FLAG,
    ),
]
"""What `TokenizeRequest` takes: a prompt or messages, which its own schema cannot say, so few by chance are right."""


def fetched(url: str) -> dict[str, Any]:
    """As clients get it."""
    document: dict[str, Any] = requests.get(f"{url}/openapi.json", timeout=_TIMEOUT_S).json()
    return document


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Most requests that follow it are answered. Examples name a model that is not here."""
    for name, schema in document["components"]["schemas"].items():
        schema.pop("examples", None)
        schema.get("properties", {}).update(_NARROWER.get(name, {}))
        if "model" in _NARROWER.get(name, {}):
            schema["required"] = sorted({*schema.get("required", []), "model"})
    document["components"]["schemas"]["TokenizeRequest"] = {"anyOf": _EITHER}
    return document
