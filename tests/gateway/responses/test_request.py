"""What a Responses request says as a chat, and how its faults are told: in the client's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.http.body import parse_body
from gateway.openai.errors.errors import ApiError
from gateway.responses.requests.request import INERT_FIELDS, ResponsesRequest

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
    assert (chat.reasoning_effort, chat.chat_template_kwargs) == ("low", {"enable_thinking": True})
    assert chat.include_queue
    assert not chat.include_usage


def test_the_text_may_be_held_to_a_schema() -> None:
    constraint = read(text={"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}}).chat.constraint
    assert constraint is not None
    assert json.loads(constraint.text) == SCHEMA
    assert read(text={"format": {"type": "text"}, "verbosity": "medium"}).chat.constraint is None


def test_items_and_parts_come_back_as_answers_have_them() -> None:
    """With what is not used of them; and null is what is not given."""
    unused = {"id": "i", "status": "completed"}
    parts = [
        {"type": "output_text", "text": "so", "annotations": [], "logprobs": [], "parsed": None},
        {"type": "refusal", "refusal": " no", "text": None},
    ]
    assert messages(
        ASKED | {"type": None, "phase": None},
        THOUGHT | unused | {"encrypted_content": "x"},
        SAID | unused | {"phase": "final_answer", "content": parts},
        CALL | unused,
        RESULT | unused,
    ) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "reasoning_content": "hm", "content": "so no", "tool_calls": called("c1")},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [ASKED, fields]}


def part(**fields: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, fields]}]}


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (item(type="message", role="user"), "input[1].content", "missing"),
        (item(type="message", content="a"), "input[1].role", "missing"),
        (item(content="a"), "input[1].role", "missing"),
        (item(role="tool", content="a"), "input[1].role", "'assistant'"),
        (item(role="user", content=5), "input[1].content", "a text, or a list of parts"),
        (item(role="user", content="a", phase="first"), "input[1].phase", "'final_answer'"),
        (item(role="user", content="a", name="n"), "input[1].name", "an object whose type is 'message' has no 'name'"),
        (item(role="user", content="a", best=1), "input[1].best", "not a known field"),
        (item(call_id="c1", output="b"), "input[1].call_id", "an object whose type is 'message' has no 'call_id'"),
        (item(**CALL | {"call_id": None}), "input[1].call_id", "missing"),
        (item(**CALL | {"name": "a b"}), "input[1].name", "pattern"),
        (item(**CALL | {"arguments": "[]"}), "input[1].arguments", "the text of a JSON object"),
        (item(**CALL | {"content": "a"}), "input[1].content", "type is 'function_call' has no 'content'"),
        (item(**CALL | {"id": "i" * 257}), "input[1].id", "256"),
        (item(**RESULT | {"output": None}), "input[1].output", "missing"),
        (item(**RESULT | {"call_id": ""}), "input[1].call_id", "at least 1"),
        (
            item(**RESULT | {"output": [{"type": "input_image"}]}),
            "input[1].output[0].type",
            "type 'input_image' are not",
        ),
        (item(**THOUGHT | {"status": "done"}), "input[1].status", "'completed'"),
        (item(**THOUGHT | {"content": [{"text": "a"}]}), "input[1].content[0].type", "'reasoning_text'"),
        (item(**THOUGHT | {"summary": [{}]}), "input[1].summary[0].type", "'summary_text'"),
        (item(**THOUGHT | {"role": "assistant"}), "input[1].role", "an object whose type is 'reasoning' has no 'role'"),
        (item(type="item_reference", id="b"), "input[1].type", "send the item itself"),
        (item(type="web_search_call"), "input[1].type", "items of type 'web_search_call' are not supported"),
        (item(type="x" * 999 + "_call"), "input[1].type", "'message', 'function_call', 'function_call_output', 'reas"),
        (item(type=5), "input[1].type", "'message', 'function_call', 'function_call_output', 'reasoning'"),
        ({"input": ["hi"]}, "input[0]", "an object"),
        (part(type="input_text"), "input[0].content[1].text", "missing"),
        (part(type="input_text", text=5), "input[0].content[1].text", "string"),
        (part(type="input_text", text="a", refusal="b"), "input[0].content[1].refusal", "has no 'refusal'"),
        (part(type="refusal"), "input[0].content[1].refusal", "missing"),
        (part(type="input_file", file_id="u"), "input[0].content[1].type", "type 'input_file' are not"),
        (part(type="input_image", file_id="u"), "input[0].content[1].image_url", "missing"),
        (part(type="text", text="a"), "input[0].content[1].type", "'input_text'"),
        (part(type=["input_text"]), "input[0].content[1].type", "'input_text'"),
        ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]", "an object"),
    ],
)
def test_what_an_item_cannot_be_is_told_of_its_field(fields: dict[str, Any], param: str, text: str) -> None:
    found, message = refusal(**fields)
    assert found == param
    assert text in message
    assert len(message) < 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
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
        ({"include": ["message.output_text"]}, "include[0]"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
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
    instead = "use 'input'" if name == "conversation" else "not supported yet"
    assert instead in message
