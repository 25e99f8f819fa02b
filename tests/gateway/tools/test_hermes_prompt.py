"""Functions in a conversation of roles and texts alone."""

from __future__ import annotations

from typing import Any

from gateway.tools.call_parser import CallParser
from gateway.tools.events import Arguments, CallBegin
from gateway.tools.hermes_prompt import with_hermes
from gateway.tools.notation import HERMES
from tests.gateway.tool_models import tool, written

TOOLS = [tool("get", city={"type": "string"}), tool("stop")]
USER = {"role": "user", "content": "hi"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": "1"}


def test_without_any_the_conversation_is_as_it_was() -> None:
    assert with_hermes([USER], []) == [USER]


def test_functions_stand_in_a_system_message_of_their_own() -> None:
    told, *rest = with_hermes([USER], TOOLS)
    assert rest == [USER]
    assert told["role"] == "system"
    assert f"<tools>\n{written(TOOLS)}\n</tools>" in told["content"]
    assert told["content"].endswith(
        '{"name": "the function\'s name", "arguments": {"a parameter": "its value"}}\n</tool_call>'
    )


def test_or_behind_what_the_system_says() -> None:
    told, *rest = with_hermes([{"role": "system", "content": "Be brief."}, USER], TOOLS)
    assert rest == [USER]
    assert told["content"] == f"Be brief.\n\n{with_hermes([USER], TOOLS)[0]['content']}"


def test_calls_stand_as_a_model_writes_them() -> None:
    calls = [call("get", city="Zürich"), call("stop")]
    (turn,) = with_hermes([{"role": "assistant", "content": "", "tool_calls": calls}], [])
    assert turn == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "get", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
    }
    parser = CallParser(HERMES, {"get": None, "stop": None})
    events = [*parser.feed(turn["content"]), *parser.end()]
    assert events == [CallBegin("get"), Arguments('{"city": "Zürich"}'), CallBegin("stop"), Arguments("{}")]


def test_text_before_calls_is_kept() -> None:
    (turn,) = with_hermes([{"role": "assistant", "content": "I look.", "tool_calls": [call("stop")]}], [])
    assert turn["content"].startswith("I look.\n<tool_call>\n")


def test_results_that_follow_each_other_are_one_turn_of_the_user() -> None:
    turns = with_hermes([result("1"), result("2"), USER, result("3")], [])
    assert turns == [
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"},
        USER,
        {"role": "user", "content": "<tool_response>\n3\n</tool_response>"},
    ]
