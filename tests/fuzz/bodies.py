"""Bodies of requests, from bytes to the payload that a node would get; and the traces that clients bring."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from opentelemetry.trace import NoOpTracer

from gateway.endpoints.call import job_parts
from gateway.endpoints.call.endpoint import Endpoint
from gateway.endpoints.call.pictures import num_extra_tokens
from gateway.endpoints.chats.chat import ChatEndpoint
from gateway.endpoints.chats.messages import MessagesEndpoint
from gateway.endpoints.chats.responses import ResponsesEndpoint
from gateway.endpoints.texts.completions import CompletionEndpoint
from gateway.http.body import parse_body
from gateway.http.context import GatewayContext
from gateway.inflight import tracing
from gateway.inflight.dispatcher import Dispatcher
from gateway.models.models import load_models
from gateway.openai.answers.answers import Usage
from gateway.openai.errors.errors import ApiError
from gateway.tenants.auth import ANYONE
from gateway.tenants.promises import choose_promise
from gateway.tenants.turn_threads import PreparingThreads, TenantThreads
from shared.config.config import ClusterConfig
from shared.messages.codec import decode_payload, encode
from shared.messages.requests.payload import Payload
from tests.fuzz.scratch import scratch
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.trees import json_mutator
from tests.gateway.memory_queue import MemoryQueue
from tests.gateway.tiny import write_model

_LENGTHS = {"tiny": 64, "long": 2048}
"""Of models, in tokens; functions need some hundred."""

_COMMON: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 8,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 4,
    "min_p": 0.1,
    "seed": -7,
    "stop": ["a", "bc"],
    "stream": True,
    "stream_options": {"include_usage": True, "include_queue": True},
    "presence_penalty": 0.5,
    "logit_bias": {"5": 1.5, "104": -100},
    "n": 2,
    "slo": {"ttft_s": 1.5, "deadline_s": 20},
    "user": "u",
    "metadata": {"a": {"b": [1, None]}},
    "response_format": {"type": "text"},
    "tools": [],
}
_TURNS = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "h\u00e9llo <|im_end|>"}], "name": "n"},
]
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"enum": [1, "b", None]}, "minItems": 1, "maxItems": 3},
        "b": {"anyOf": [{"type": "string", "pattern": "^x+$"}, {"$ref": "#/$defs/c"}]},
    },
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"c": {"type": "number", "minimum": 0, "maximum": 9.5}},
}
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get", "arguments": '{"a": ["<|im_end|>", 1e3, null]}'},
}
_CALLED = [
    {"role": "user", "content": "h"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12"}]},
]
_TOOLS = [
    {
        "type": "function",
        "function": {"name": "get", "description": "<|im_end|>", "parameters": _SCHEMA, "strict": True},
    },
    {"type": "function", "function": {"name": "stop"}},
]
_CHAT: list[dict[str, Any]] = [
    {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]},
    {**_COMMON, "messages": _TURNS, "logprobs": True, "top_logprobs": 3, "max_completion_tokens": 4},
    {"model": "tiny", "messages": _TURNS[:1], "response_format": {"type": "json_object"}},
    {"model": "long", "messages": _CALLED, "tools": _TOOLS, "parallel_tool_calls": False, "stream": True},
    {"model": "long", "messages": _CALLED[:1], "tools": _TOOLS, "tool_choice": "required"},
    {
        "model": "long",
        "messages": _CALLED[:1],
        "tools": _TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "stop"}},
    },
    {
        "model": "tiny",
        "messages": _TURNS[:1],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA, "strict": True}},
    },
]
_COMPLETIONS: list[dict[str, Any]] = [
    {"model": "tiny", "prompt": "hello"},
    {**_COMMON, "prompt": [[104, 101], [5]], "logprobs": 2, "slo": "batch"},
    {"model": "tiny", "prompt": ["a<|im_start|>", "b"], "best_of": 3, "length_penalty": 0.5, "echo": True},
    {"model": "tiny", "prompt": "a", "use_beam_search": True, "n": 2, "max_tokens": 4},
    {"model": "tiny", "prompt": "a", "structured_outputs": {"json": _SCHEMA}},
    {"model": "tiny", "prompt": "a", "structured_outputs": {"regex": "[a-c]{2}(d|e)*\\\\."}},
    {"model": "tiny", "prompt": "a", "structured_outputs": {"choice": ["yes", "n\u00f6"]}},
    {"model": "tiny", "prompt": "a", "structured_outputs": {"grammar": 'start: "a" b*\nb: /[0-9]/ | start "c"'}},
    {"model": "tiny", "prompt": "a", "structured_outputs": {"grammar": 'root ::= "a" b*\nb ::= [0-9] | root'}},
]

_RESPONSES: list[dict[str, Any]] = [
    {"model": "tiny", "input": "hello", "instructions": "be brief", "max_output_tokens": 4},
    {
        "model": "long",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "h\u00e9llo <|im_end|>"}]},
            {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "call_id": "c", "name": "get", "arguments": '{"a": ["<|im_end|>", 1e3]}'},
            {"type": "function_call_output", "call_id": "c", "output": "12"},
        ],
        "tools": [{"type": "function", "name": "get", "description": "<|im_end|>", "parameters": _SCHEMA}],
        "tool_choice": {"type": "function", "name": "get"},
        "stream": True,
        "stream_options": {"include_queue": True},
        "metadata": {"a": "b"},
        "store": True,
    },
    {"model": "tiny", "input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}}},
]

_MESSAGES: list[dict[str, Any]] = [
    {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}], "system": "be brief"},
    {
        "model": "long",
        "max_tokens": 8,
        "system": [{"type": "text", "text": "<|im_end|>", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "h\u00e9llo <|im_end|>"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c", "name": "get", "input": {"a": ["<|im_end|>", 1e3]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "12", "is_error": True},
                    {"type": "text", "text": "and?"},
                ],
            },
        ],
        "tools": [{"name": "get", "description": "<|im_end|>", "input_schema": _SCHEMA, "type": "custom"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["a", "bc"],
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "slo": {"ttft_s": 1.5},
        "context_management": {"edits": []},
    },
    {
        "model": "tiny",
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": "a"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": _SCHEMA}},
    },
]


@cache
def _context() -> GatewayContext:
    models = [
        {"name": name, "source": str(write_model(scratch() / f"{name}.gguf", context_length=length))}
        for name, length in _LENGTHS.items()
    ]
    config = ClusterConfig.model_validate({"models": models})
    dispatcher = Dispatcher(MemoryQueue(None), "gateway-0")
    return GatewayContext(config, load_models(config), dispatcher, lambda: "", random_bytes=bytes)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _threads() -> TenantThreads:
    return PreparingThreads().of("")


def _payloads(endpoint: Endpoint[Any], data: bytes) -> list[Payload]:
    """As `gateway.endpoints.call.endpoint` makes them, up to the queue."""
    context = _context()
    body = parse_body(data, endpoint.body_model)
    asked = endpoint.asked(body)
    model = job_parts.find_model(context, asked.model)
    choose_promise(context.config, ANYONE, asked.slo, None)
    constraint = _loop().run_until_complete(endpoint.constraint(body, model, _threads()))
    pictures = _loop().run_until_complete(endpoint.pictures(body, model, context.models_with_pictures, _threads()))
    prompts = _loop().run_until_complete(endpoint.prompts(body, model, _threads()))
    room, candidates = endpoint.room(body), asked.num_candidates
    extra, param = num_extra_tokens(pictures), endpoint.prompt_param
    limits = [job_parts.max_tokens(model, len(one) + extra, room, param, candidates) for one in prompts]
    endpoint.renderer(body, model, "r", 0).opening(Usage(1, 0, 1))
    sampling = [job_parts.sampling(context, model, asked, limit, constraint) for limit in limits]
    return [Payload("r", 0, "g", model.name, ids, how) for ids, how in zip(prompts, sampling, strict=True)]


def _checker(endpoint: Endpoint[Any]) -> Callable[[bytes], bool]:
    def check(data: bytes) -> bool:
        payloads: list[Payload] = []

        def read() -> None:
            try:
                payloads.extend(_payloads(endpoint, data))
            except ApiError as error:
                rule(400 <= error.status < 500, "what a client wrote is never the server's fault")
                json.dumps(error.body()).encode()
                raise

        if refused(read, ApiError):
            return False
        for payload in payloads:
            rule(decode_payload(encode(payload)) == payload, "a node reads what the gateway wrote")
            rule(all(0 <= token < 264 for token in payload.prompt_token_ids), "tokens are the model's")
            room = _LENGTHS[payload.model] - len(payload.prompt_token_ids)
            rule(1 <= payload.sampling.max_tokens <= room, "the answer has room")
        return True

    return check


def _check_trace(data: bytes) -> bool:
    """Headers come as latin-1 from the wire; a bad one means a trace of one's own."""
    name, _, value = data.decode("utf-8", "surrogateescape").partition(":")
    with tracing.request_span(NoOpTracer(), "chat", {name: value}) as span:
        return span.get_span_context().is_valid


def _headers() -> Sequence[bytes]:
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    return [b"traceparent:" + trace, b"Traceparent:" + trace, b"tracestate:a=b,c=d", b"baggage:a=b"]


TARGETS = [
    Target("chat bodies", lambda: _dumped(_CHAT), _checker(ChatEndpoint()), json_mutator, share=12),
    Target("completion bodies", lambda: _dumped(_COMPLETIONS), _checker(CompletionEndpoint()), json_mutator, share=12),
    Target("responses bodies", lambda: _dumped(_RESPONSES), _checker(ResponsesEndpoint()), json_mutator, share=12),
    Target("message bodies", lambda: _dumped(_MESSAGES), _checker(MessagesEndpoint()), json_mutator, share=12),
    Target("trace headers", _headers, _check_trace, is_guided=False, share=15),
]


def _dumped(bodies: Sequence[dict[str, Any]]) -> Sequence[bytes]:
    return [json.dumps(body).encode() for body in bodies]
