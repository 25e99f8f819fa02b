"""Functions in a request: what is taken, and how each wrong shape is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.http.body import parse_body
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import ChatCompletionRequest
from gateway.openai.requests.tools import MAX_DEPTH, MAX_TOOLS, MAX_TOOLS_CHARACTERS
from gateway.openai.tokenize import TokenizeRequest
from tests.gateway.openai.requests.test_schema import USER, chat, refusal

GET = {"type": "function", "function": {"name": "get"}}
STOP = {"type": "function", "function": {"name": "stop"}}
NAMED = {"type": "function", "function": {"name": "stop"}}


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **fields}}]}


def call(**fields: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


def asked(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "tool_calls": list(calls), **fields}]}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def names(body: ChatCompletionRequest) -> tuple[list[str], list[str], bool, bool]:
    told = [tool.function.name for tool in body.told_tools]
    forced = [tool.function.name for tool in body.forced_tools] if body.is_call_forced else []
    return told, forced, body.is_call_forced, body.is_call_single


@pytest.mark.parametrize(
    ("fields", "told", "forced", "is_single"),
    [
        ({}, [], [], False),
        ({"tools": None, "tool_choice": None, "parallel_tool_calls": None}, [], [], False),
        ({"tools": [], "tool_choice": "none"}, [], [], False),
        ({"tools": [GET, STOP]}, ["get", "stop"], [], False),
        ({"tools": [GET, STOP], "tool_choice": "auto"}, ["get", "stop"], [], False),
        ({"tools": [GET, STOP], "tool_choice": "auto", "parallel_tool_calls": False}, ["get", "stop"], [], True),
        ({"tools": [GET, STOP], "tool_choice": "none"}, [], [], False),
        ({"tools": [GET, STOP], "tool_choice": "required"}, ["get", "stop"], ["get", "stop"], False),
        ({"tools": [GET, STOP], "tool_choice": NAMED}, ["get", "stop"], ["stop"], True),
    ],
)
def test_which_functions_are_told_and_which_are_called(
    fields: dict[str, Any], told: list[str], forced: list[str], is_single: bool
) -> None:
    assert names(chat(**fields)) == (told, forced, bool(forced), is_single)


def test_functions_are_told_as_templates_expect_them() -> None:
    schema = {"type": "object", "properties": {"a": {"default": None}}}
    (whole,) = chat(**function(description="d", parameters=schema, strict=True)).tools
    assert whole.function.told() == {"name": "f", "description": "d", "parameters": schema}
    (bare,) = chat(**function(parameters=None, strict=None)).tools
    assert bare.function.told() == {
        "name": "f",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"tools": {}}, "tools", "list"),
        ({"tools": [5]}, "tools[0]", "it is no JSON object"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", "missing"),
        ({"tools": [{"type": "web_search", "function": {"name": "f"}}]}, "tools[0].type", "'function'"),
        ({"tools": [GET | {"mood": 1}]}, "tools[0].mood", "not a known field"),
        ({"tools": [GET] * (MAX_TOOLS + 1)}, "tools", "at most 128"),
        ({"tools": [GET, STOP, GET]}, "tools[2].function.name", "'get' is there twice"),
        (function(name=None), "tools[0].function.name", "missing"),
        (function(name=""), "tools[0].function.name", "pattern"),
        (function(name="a b"), "tools[0].function.name", "pattern"),
        (function(name="f\n"), "tools[0].function.name", "pattern"),
        (function(name="f" * 65), "tools[0].function.name", "pattern"),
        (function(description=5), "tools[0].function.description", "string"),
        (function(description="d" * 32_769), "tools[0].function.description", "32768"),
        (function(parameters=[]), "tools[0].function.parameters", "a schema is an object"),
        (function(parameters={"type": "string"}), "tools[0].function.parameters", "whose type is 'object'"),
        (function(parameters={"a": "x" * 65_536}), "tools[0].function.parameters", "at most 65536"),
        (function(parameters=nested(MAX_DEPTH + 1)), "tools[0].function.parameters", "more than 64 objects"),
        (function(strict="yes"), "tools[0].function.strict", "boolean"),
        (function(examples=[]), "tools[0].function.examples", "not a known field"),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": name, "parameters": {"a": "x" * 60_000}}}
                    for name in "abc"
                ]
            },
            "tools",
            f"at most {MAX_TOOLS_CHARACTERS} characters together, not 180027",
        ),
        ({"tool_choice": "auto"}, "tool_choice", "only allowed with tools"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "only allowed with tools"),
        ({"tool_choice": "any", "tools": [GET]}, "tool_choice", "'none', 'auto', 'required', or an object"),
        ({"tool_choice": 5, "tools": [GET]}, "tool_choice", "it is no JSON object"),
        ({"tool_choice": {"type": "auto"}, "tools": [GET]}, "tool_choice", "an object names a function"),
        ({"tool_choice": {"type": "function"}, "tools": [GET]}, "tool_choice", "function is given where"),
        ({"tool_choice": {"function": {"name": "get"}}, "tools": [GET]}, "tool_choice.type", "missing"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f!"}}, "tools": [GET]},
            "tool_choice.function.name",
            "pattern",
        ),
        ({"tool_choice": NAMED, "tools": [GET]}, "tool_choice", "there is no function 'stop' in tools"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls", "boolean"),
        (asked(call(id=None)), "messages[1].tool_calls[0].id", "missing"),
        (asked(call(id="")), "messages[1].tool_calls[0].id", "at least 1"),
        (asked(call(id="x" * 257)), "messages[1].tool_calls[0].id", "at most 256"),
        (asked(call(type="tool")), "messages[1].tool_calls[0].type", "'function'"),
        (asked(call(function={"name": "f"})), "messages[1].tool_calls[0].function.arguments", "missing"),
        (asked(*[call()] * 129), "messages[1].tool_calls", "at most 128"),
        (asked(), "messages[1].content", "missing"),
        (asked(content=None), "messages[1].content", "missing"),
        ({"messages": [USER | {"tool_calls": [call()]}]}, "messages[0].tool_calls", "the assistant's"),
        ({"messages": [USER | {"tool_call_id": "1"}]}, "messages[0].tool_call_id", "role 'tool'"),
        ({"messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id", "missing"),
        ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages[0].content", "missing"),
    ],
)
def test_each_wrong_shape_names_its_field(fields: dict[str, Any], param: str, text: str) -> None:
    error = refusal(fields)
    assert error.param == param
    assert text in error.message


@pytest.mark.parametrize("arguments", ["", "{", "[]", "5", '{"a": NaN}', '{"a": 1} x', "[" * 100_000])
def test_arguments_are_the_text_of_an_object(arguments: str) -> None:
    error = refusal(asked(call(function={"name": "f", "arguments": arguments})))
    assert error.param == "messages[1].tool_calls[0].function.arguments"


def test_arguments_are_not_too_deep() -> None:
    assert chat(**asked(call(function={"name": "f", "arguments": json.dumps(nested(MAX_DEPTH))})))
    error = refusal(asked(call(function={"name": "f", "arguments": json.dumps(nested(MAX_DEPTH + 1))})))
    assert "more than 64 objects" in error.message


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format", "when tool_choice is 'none'"),
        ({"structured_outputs": {"regex": "a"}, "tool_choice": "auto"}, "structured_outputs", "tool_choice is 'none'"),
        ({"tool_choice": "required", "use_beam_search": True}, "tool_choice", "use_beam_search"),
        ({"tool_choice": NAMED, "ignore_eos": True}, "ignore_eos", "tool_choice"),
    ],
)
def test_what_functions_cannot_be_combined_with(fields: dict[str, Any], param: str, text: str) -> None:
    error = refusal({"tools": [GET, STOP], **fields})
    assert (error.param, error.code) == (param, "invalid_value")
    assert text in error.message


def test_what_they_can_be_combined_with() -> None:
    kept = chat(tools=[GET], tool_choice="none", response_format={"type": "json_object"})
    assert kept.constraint is not None
    chat(tools=[GET], n=2, logprobs=True, stop="x", stream=True)
    chat(tools=[GET], use_beam_search=True)
    chat(tools=[GET], tool_choice="required", response_format={"type": "text"}, best_of=2)


def test_a_turn_of_calls_may_have_content_or_none() -> None:
    for content in (None, "", "I look."):
        _, turn = chat(**asked(call(), content=content)).messages
        assert (turn.text, len(turn.tool_calls)) == (content or "", 1)
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12"}]}
    assert chat(messages=[USER, result]).messages[1].content == "12"


def test_tokenize_takes_the_same_turns() -> None:
    body = json.dumps({"messages": [{"role": "tool", "content": "x"}]}).encode()
    with pytest.raises(ApiError, match=r"'messages\[0\].tool_call_id' is missing"):
        parse_body(body, TokenizeRequest)
