"""What Anthropic's requests say, as chats; and what is refused by the client's own name of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.anthropic.requests import UNSUPPORTED, CountTokensRequest, MessagesRequest
from gateway.http.body import parse_body
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.tools import MAX_DEPTH, MAX_TOOLS

HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GET = {"name": "get", "description": "Gets.", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "c1", "name": "get", "input": {"city": "Paris"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "12"}
PICTURED_RESULT = RESULT | {"content": [{"type": "image"}]}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def read(**fields: Any) -> MessagesRequest:
    body = {"model": "m", "max_tokens": 9, "messages": [HI]} | fields
    return parse_body(json.dumps(body).encode(), MessagesRequest)


def messages(*turns: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Of the chat; fields that say nothing are left out."""
    chat = read(messages=list(turns), **fields).chat
    return [message.model_dump(exclude_unset=True) for message in chat.messages]


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def said(*blocks: Any) -> list[Any]:
    return [HI, {"role": "assistant", "content": list(blocks)}, HI]


def heard(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": list(blocks)}]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_a_request_as_a_chat() -> None:
    chat = read(
        system="be brief",
        stop_sequences=["a", "b"],
        stream=True,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        slo={"ttft_s": 1.5},
        metadata={"user_id": "u"},
        service_tier="standard_only",
        **CACHED,
    ).chat
    assert [(one.role, one.content) for one in chat.messages] == [("system", "be brief"), ("user", "hi")]
    assert (chat.model, chat.max_tokens, chat.stop, chat.stream) == ("m", 9, ["a", "b"], True)
    assert (chat.temperature, chat.top_p, chat.top_k) == (0.5, 0.9, 4)
    assert chat.slo is not None
    assert chat.slo.ttft_s == 1.5


def test_without_options_they_are_those_of_a_chat() -> None:
    chat = read().chat
    assert (chat.temperature, chat.top_p, chat.top_k, chat.stop, chat.stream) == (1.0, 1.0, 0, [], False)
    assert (chat.told_tools, chat.tool_choice, chat.slo, chat.constraint, chat.n) == ([], None, None, None, 1)


def test_texts_are_joined() -> None:
    blocks = [{"type": "text", "text": "a", **CACHED}, {"type": "text", "text": "b"}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": blocks}, {"role": "assistant", "content": blocks}, HI]
    assert messages(*turns, system=blocks) == [
        {"role": "system", "content": "ab"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "ab"},
        {"role": "user", "content": "hi"},
    ]


def test_a_turn_of_results_and_text_becomes_turns_in_their_order() -> None:
    blocks = [
        {"type": "text", "text": "x"},
        RESULT | CACHED,
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "no"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "c3"},
        {"type": "text", "text": "y"},
        {"type": "text", "text": "z"},
    ]
    assert messages(*heard(*blocks)) == [
        {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "c1", "content": "12"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no"},
        {"role": "tool", "tool_call_id": "c3", "content": ""},
        {"role": "user", "content": "yz"},
    ]


def test_results_alone_leave_no_turn_of_the_user() -> None:
    assert [one["role"] for one in messages(*heard(RESULT))] == ["tool"]
    assert messages({"role": "user", "content": []}) == [{"role": "user", "content": ""}]


def test_a_turn_of_the_assistant() -> None:
    blocks = [
        {"type": "thinking", "thinking": "h", "signature": "s"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "thinking", "thinking": "m"},
        {"type": "text", "text": "I look."},
        CALL | CACHED,
        {"type": "tool_use", "id": "c2", "name": "get", "input": {}},
    ]
    _, turn, _ = messages(*said(*blocks))
    assert turn == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"city":"Paris"}'}},
            {"id": "c2", "type": "function", "function": {"name": "get", "arguments": "{}"}},
        ],
    }


def test_a_turn_of_the_assistant_needs_no_text() -> None:
    assert "content" not in messages(*said(CALL))[1]
    assert messages(*said({"type": "redacted_thinking", "data": "x"}))[1] == {"role": "assistant", "content": ""}


def test_tools() -> None:
    chat = read(tools=[GET | CACHED | {"type": "custom", "strict": True, "eager_input_streaming": True}]).chat
    assert [tool.function.told() for tool in chat.told_tools] == [
        {"name": "get", "description": "Gets.", "parameters": SCHEMA}
    ]
    assert read(tools=[{"name": "f", "input_schema": {"type": "object"}, "description": "d" * 30_000}])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, (1, False, False)),
        ({"type": "auto", "disable_parallel_tool_use": True}, (1, False, True)),
        ({"type": "none"}, (0, False, False)),
        ({"type": "any"}, (1, True, False)),
        ({"type": "any", "disable_parallel_tool_use": True}, (1, True, True)),
        ({"type": "tool", "name": "get"}, (1, True, True)),
    ],
)
def test_whether_tools_are_used(choice: dict[str, Any], expected: tuple[int, bool, bool]) -> None:
    chat = read(tools=[GET], tool_choice=choice).chat
    assert (len(chat.told_tools), chat.is_call_forced, chat.is_call_single) == expected


def test_an_answer_of_a_schema() -> None:
    chat = read(output_config={"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "high"}).chat
    assert chat.constraint is not None
    assert json.loads(chat.constraint.text) == SCHEMA


def test_what_is_said_of_thoughts() -> None:
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert read().wants_thoughts is None
    assert read(thinking={"type": "disabled"}).wants_thoughts is False
    assert read(thinking={"type": "adaptive"}).wants_thoughts is True
    assert read(thinking=enabled, max_tokens=1025).wants_thoughts is True
    assert read(thinking=enabled | {"display": "summarized"}, max_tokens=1025).shows_thoughts is True
    assert read(thinking=enabled | {"display": "omitted"}, max_tokens=1025).shows_thoughts is False


def test_fields_that_are_not_here_may_ask_for_nothing() -> None:
    for name, values in UNSUPPORTED.items():
        for value in [*values, None]:
            assert read(**{name: value})


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_fields_that_are_not_here_are_refused_by_name(name: str) -> None:
    error = refusal(**{name: "x"})
    assert (error.param, error.code, error.message) == (
        name,
        "unsupported_parameter",
        f"{name!r} is not supported yet",
    )


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"best": 1}, "best", "not a known field"),
        ({"model": None}, "model", "missing"),
        ({"model": "m" * 257}, "model", "256"),
        ({"max_tokens": None}, "max_tokens", "missing"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": 1.0}, "max_tokens", "integer"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": ["hi"]}, "messages[0]", "an object"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role", "goes into system"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "'user', 'assistant'"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "'user', 'assistant'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
        ({"messages": [HI | {"name": "n"}]}, "messages[0].name", "not a known field"),
        ({"messages": [HI | {"content": 5}]}, "messages[0].content", "list"),
        ({"messages": heard("x")}, "messages[0].content[0]", "an object"),
        ({"messages": heard({"text": "x"})}, "messages[0].content[0].type", "'text', 'image', 'tool_result'"),
        ({"messages": heard({"type": "text"})}, "messages[0].content[0].text", "missing"),
        ({"messages": heard({"type": "image"})}, "messages[0].content[0].source", "missing"),
        ({"messages": heard({"type": "image", "source": {}})}, "messages[0].content[0].source.type", "'base64'"),
        (
            {"messages": heard({"type": "image", "source": {"type": "url", "url": "https://a.b"}})},
            "messages[0].content[0].source.type",
            "nothing is fetched",
        ),
        ({"messages": heard({"type": "document"})}, "messages[0].content[0].type", "type 'document' are not"),
        ({"messages": heard({"type": "x" * 999})}, "messages[0].content[0].type", "'text', 'image', 'tool_result'"),
        ({"messages": heard(CALL)}, "messages[0].content[0].type", "'text', 'image', 'tool_result'"),
        (
            {"messages": heard(RESULT | {"content": [{"type": "image"}]})},
            "messages[0].content[0].content[0].type",
            "im",
        ),
        ({"messages": heard(RESULT | {"tool_use_id": ""})}, "messages[0].content[0].tool_use_id", "at least 1"),
        ({"messages": heard(RESULT | {"is_error": 1})}, "messages[0].content[0].is_error", "boolean"),
        ({"messages": said(RESULT)}, "messages[1].content[0].type", "'tool_use'"),
        ({"messages": said({"type": "server_tool_use"})}, "messages[1].content[0].type", "'server_tool_use' are not"),
        ({"messages": said(CALL | {"input": "x"})}, "messages[1].content[0].input", "dictionary"),
        ({"messages": said(CALL | {"input": nested(MAX_DEPTH + 1)})}, "messages[1].content[0].input", "64 objects"),
        ({"messages": said(CALL, CALL | {"input": {"a": "x" * 300_000}})}, "messages[1].content[1].input", "262144"),
        ({"messages": said(CALL | {"name": "a b"})}, "messages[1].content[0].name", "pattern"),
        ({"messages": said(*[CALL] * 129)}, "messages[1].content", "at most 128"),
        ({"messages": [HI, {"role": "assistant", "content": "x"}]}, "messages[1].role", "the last turn is the user's"),
        ({"system": 5}, "system", "list"),
        ({"system": [{"type": "image"}]}, "system[0].type", "type 'image' are not"),
        ({"stop_sequences": "x"}, "stop_sequences", "list"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]", "at least 1"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences", "at most 16"),
        ({"stream": 1}, "stream", "boolean"),
        ({"temperature": 1.1}, "temperature", "less than or equal to 1"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": -1}, "top_k", "greater than or equal to 0"),
        ({"tools": [GET] * (MAX_TOOLS + 1)}, "tools", "at most 128"),
        ({"tools": [GET, GET]}, "tools[1].name", "'get' is there twice"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "missing"),
        ({"tools": [GET | {"input_schema": {"type": "array"}}]}, "tools[0].input_schema", "'object'"),
        ({"tools": [GET | {"description": "d" * 32_769}]}, "tools[0].description", "32768"),
        ({"tools": [GET | {"input_examples": []}]}, "tools[0].input_examples", "not a known field"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type", "a server runs"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type", "'bash_20250124'"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "only allowed with tools"),
        ({"tools": [GET], "tool_choice": "auto"}, "tool_choice", ""),
        ({"tools": [GET], "tool_choice": {"type": "tool"}}, "tool_choice", "name is given where"),
        ({"tools": [GET], "tool_choice": {"type": "auto", "name": "get"}}, "tool_choice", "name is given where"),
        ({"tools": [GET], "tool_choice": {"type": "tool", "name": "put"}}, "tool_choice", "no function 'put'"),
        ({"thinking": {"type": "enabled"}}, "thinking", "budget_tokens is given where"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 2000}}, "thinking", "budget_tokens is given where"),
        ({"thinking": {"type": "disabled", "display": "omitted"}}, "thinking", "display is for thoughts"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens", "1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.budget_tokens", "less than max_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type", "'adaptive'"),
        (
            {
                "max_tokens": 2000,
                "tools": [GET],
                "tool_choice": {"type": "any"},
                "thinking": {"type": "enabled", "budget_tokens": 1024},
            },
            "thinking",
            "asks for calls",
        ),
        ({"output_config": {"effort": "low"}}, "output_config.effort", "'high'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema", "missing"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"a": "x" * 70_000}}}},
            "output_config.format.schema",
            "at most 65536",
        ),
        (
            {"tools": [GET], "output_config": {"format": {"type": "json_schema", "schema": {}}}},
            "output_config.format",
            "output_config.format is only allowed with tools when",
        ),
        ({"metadata": {"user": "u"}}, "metadata.user", "not a known field"),
        ({"metadata": {"user_id": "u" * 513}}, "metadata.user_id", "512"),
        ({"service_tier": "priority"}, "service_tier", "'auto'"),
        ({"cache_control": {"type": "forever"}}, "cache_control.type", "'ephemeral'"),
        ({"slo": {"ttft_s": 0}}, "slo.ttft_s", "0.001"),
        ({"n": 2}, "n", "not a known field"),
    ],
)
def test_what_cannot_be_is_refused_by_its_own_name(fields: dict[str, Any], param: str, text: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert text in error.message
    assert len(error.message) < 400


def test_a_count_is_asked_for_without_what_is_said_of_an_answer() -> None:
    body = {"model": "m", "messages": [HI, {"role": "assistant", "content": "x"}], "system": "s", "tools": [GET]}
    asked = parse_body(json.dumps(body).encode(), CountTokensRequest)
    assert [one.role for one in asked.chat.messages] == ["system", "user", "assistant"]
    with pytest.raises(ApiError, match="'max_tokens' is not a known field"):
        parse_body(json.dumps(body | {"max_tokens": 5}).encode(), CountTokensRequest)
