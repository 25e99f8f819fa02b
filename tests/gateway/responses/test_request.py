"""What a Responses request says as a chat, and how its faults are told: in the client's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.http.body import parse_body
from gateway.openai.errors import ApiError
from gateway.responses.request import INERT_FIELDS, ResponsesRequest

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
GET = {"type": "function", "name": "get", "description": "weather", "parameters": SCHEMA}
CALL = {"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]}
ASKED = {"role": "user", "content": "q"}


def read(**fields: Any) -> ResponsesRequest:
    return parse_body(json.dumps({"model": "m", "input": "hi"} | fields).encode(), ResponsesRequest)


def messages(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    body = read(input=list(items), **fields)
    return [message.model_dump(exclude_unset=True) for message in body.chat.messages]


def refusal(**fields: Any) -> tuple[str | None, str]:
    with pytest.raises(ApiError) as error:
        read(**fields)
    assert error.value.status == 400
    return error.value.param, error.value.message


def called(*ids: str) -> list[dict[str, Any]]:
    return [{"id": one, "type": "function", "function": {"name": "get", "arguments": "{}"}} for one in ids]


def test_a_text_is_what_the_user_says() -> None:
    assert read().chat.messages[0].model_dump(exclude_unset=True) == {"role": "user", "content": "hi"}


def test_instructions_stand_before_all_else() -> None:
    assert messages(ASKED, instructions="brief") == [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "q"},
    ]


def test_what_the_assistant_did_in_a_row_is_one_turn() -> None:
    second = CALL | {"call_id": "c2"}
    assert messages(ASKED, THOUGHT, SAID, CALL, second, RESULT, SAID) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "reasoning_content": "hm", "content": "so", "tool_calls": called("c1", "c2")},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "assistant", "content": "so"},
    ]


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([SAID, SAID], [{"content": "so"}, {"content": "so"}]),
        ([CALL, SAID], [{"tool_calls": called("c1")}, {"content": "so"}]),
        ([CALL, THOUGHT, SAID], [{"tool_calls": called("c1")}, {"reasoning_content": "hm", "content": "so"}]),
        ([THOUGHT, CALL], [{"reasoning_content": "hm", "tool_calls": called("c1")}]),
        ([THOUGHT, ASKED], [{"reasoning_content": "hm", "content": ""}, {"role": "user", "content": "q"}]),
        ([{**THOUGHT, "content": None, "summary": [{"type": "summary_text", "text": "s"}]}, CALL],
         [{"reasoning_content": "s", "tool_calls": called("c1")}]),
        ([CALL, {**RESULT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
         [{"tool_calls": called("c1")}, {"role": "tool", "content": "ab", "tool_call_id": "c1"}]),
    ],
)  # fmt: skip
def test_turns_begin_where_others_end(items: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
    assert messages(*items) == [{"role": "assistant"} | turn for turn in turns]


def test_options_are_those_of_a_chat() -> None:
    chat = read(
        tools=[GET],
        tool_choice={"type": "function", "name": "get"},
        parallel_tool_calls=False,
        max_output_tokens=7,
        temperature=0.5,
        top_k=3,
        seed=1,
        slo="batch",
        metadata={"a": "b"},
        reasoning={"effort": "low", "summary": "auto"},
        chat_template_kwargs={"enable_thinking": True},
        stream=True,
        stream_options={"include_queue": True},
        max_tool_calls=3,
        include=["reasoning.encrypted_content"],
        store=True,
        service_tier="auto",
    ).chat
    assert chat.told_tools[0].function.told() == {"name": "get", "description": "weather", "parameters": SCHEMA}
    assert [tool.function.name for tool in chat.forced_tools] == ["get"]
    assert chat.is_call_forced
    assert chat.is_call_single
    assert (chat.max_completion_tokens, chat.temperature, chat.top_k, chat.seed) == (7, 0.5, 3, 1)
    assert chat.slo is not None
    assert chat.slo.class_name == "batch"
    assert chat.chat_template_kwargs == {"reasoning_effort": "low", "enable_thinking": True}
    assert chat.include_queue
    assert not chat.include_usage


def test_the_text_may_be_held_to_a_schema() -> None:
    constraint = read(text={"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}}).chat.constraint
    assert constraint is not None
    assert json.loads(constraint.text) == SCHEMA
    assert read(text={"format": {"type": "text"}, "verbosity": "medium"}).chat.constraint is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "message", "role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "message", "content": "a"}]}, "input[0].role"),
        ({"input": [ASKED | {"output": "b"}]}, "input[0].output"),
        ({"input": [{"type": "item_reference", "id": "b"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": ["input_text"]}]}]}, "input[0].content"),
        ({"input": [ASKED, CALL | {"arguments": "[]"}]}, "input[1].arguments"),
        ({"input": [ASKED, *[CALL] * 129]}, "input[1].tool_calls"),
        ({"tools": [GET, GET]}, "tools[1].name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [GET | {"parameters": {"type": "array"}}]}, "tools[0].parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [GET], "tool_choice": {"type": "function", "name": "set"}}, "tool_choice"),
        ({"tools": [GET], "text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
        ({"text": {"format": {"type": "text", "name": "a"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"stream_options": {"include_queue": True}}, "stream_options"),
        ({"ignore_eos": True, "text": {"format": {"type": "json_object"}}}, "ignore_eos"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"reasoning": {"effort": "{{ x }}"}}, "reasoning.effort"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"messages": [ASKED]}, "messages"),
        ({"n": 2}, "n"),
        ({"model": None}, "model"),
    ],
)
def test_a_fault_names_the_clients_field(fields: dict[str, Any], param: str) -> None:
    assert refusal(**fields)[0] == param


def test_no_message_names_a_field_of_chats() -> None:
    format_ = {"format": {"type": "json_object"}}
    assert refusal(tools=[GET], text=format_)[1] == "text.format is only allowed with tools when tool_choice is 'none'"


@pytest.mark.parametrize("name", INERT_FIELDS)
def test_fields_that_are_not_there_are_refused_unless_they_ask_for_nothing(name: str) -> None:
    for value in [*INERT_FIELDS[name], None]:
        assert read(**{name: value}).chat.messages[0].content == "hi"
    param, message = refusal(**{name: "something"})
    assert param == name
    instead = "use 'input'" if name in ("conversation", "previous_response_id") else "not supported yet"
    assert instead in message
