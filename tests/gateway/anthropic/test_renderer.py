"""The events of a message, as they go out; and that they add up to what a whole message says."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.event import written
from gateway.anthropic.renderer import MessageRenderer
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.openai.answers.answers import CompletionTokensDetails, FinishReason, PromptTokensDetails, Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors import errors
from gateway.reasoning.marks import THINK, ThoughtReading
from gateway.tools.notation import NOTATIONS

THOUGHTS = ThoughtReading(THINK, is_open=False)
CALLS = CallReading(NOTATIONS["hermes"], {"get": None}, is_single=False)
CALL = '<tool_call>\n{"name": "get", "arguments": {"a": 1.50}}\n</tool_call>'
USAGE = Usage(3, 4, 7)


def renderer(*, shows_thoughts: bool = True) -> MessageRenderer:
    return MessageRenderer("r", "m", ChoiceReading(THOUGHTS, CALLS, "r", 0), shows_thoughts=shows_thoughts)


def transcript(pieces: list[str], reason: FinishReason = "stop", stop: str | None = None, **how: bool) -> str:
    """All of a stream, as it goes out; each piece is a token."""
    writer = renderer(**how)
    events = [*writer.opening(Usage(3, 0, 3))]
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        last = Delta(piece, 1, reason, stop_string=stop)
        events += writer.events(last if is_last else Delta(piece, 1))
    return b"".join(map(written, [*events, *writer.closing(USAGE)])).decode()


def whole(text: str, reason: FinishReason = "stop", stop: str | None = None, **how: bool) -> dict[str, Any]:
    answer = renderer(**how).whole([Delta(text, 4, reason, stop_string=stop)], USAGE)
    value: dict[str, Any] = json.loads(msgspec.json.encode(answer))
    return value


def accumulated(stream: str) -> dict[str, Any]:
    """The message that a client makes of the events. An input stays the text that it came as."""
    message: dict[str, Any] = {}
    for event in stream.split("\n\n")[:-1]:
        name, data = event.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        match value["type"]:
            case "message_start":
                message = value["message"]
            case "content_block_start":
                assert value["index"] == len(message["content"])
                message["content"].append(value["content_block"])
                if value["content_block"]["type"] == "tool_use":
                    message["content"][-1]["input"] = ""
            case "content_block_delta":
                block, delta = message["content"][value["index"]], value["delta"]
                assert value["index"] == len(message["content"]) - 1
                field = {"input_json_delta": "partial_json"}.get(delta["type"], delta["type"].removesuffix("_delta"))
                block["input" if field == "partial_json" else field] += delta[field]
            case "message_delta":
                message |= value["delta"] | {"usage": value["usage"]}
    return message


def test_thoughts_text_and_a_call() -> None:
    call = '"name":"get"'
    assert transcript(["<think>h", "m</think>", "o", "k", CALL[:43], CALL[43:]]).split("\n\n") == [
        'event: message_start\ndata: {"type":"message_start","message":{"type":"message","id":"msg_r",'
        '"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
        '"usage":{"input_tokens":3,"output_tokens":0}}}',
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"thinking","thinking":"","signature":""}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"thinking_delta","thinking":"h"}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"thinking_delta","thinking":"m"}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"signature_delta","signature":""}}',
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}',
        'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
        '"content_block":{"type":"text","text":""}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        '"delta":{"type":"text_delta","text":"o"}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        '"delta":{"type":"text_delta","text":"k"}}',
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}',
        'event: content_block_start\ndata: {"type":"content_block_start","index":2,'
        f'"content_block":{{"type":"tool_use","id":"call_861325fadc4b55507881f26e",{call},"input":{{}}}}}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":2,'
        '"delta":{"type":"input_json_delta","partial_json":"{\\""}}',
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":2,'
        '"delta":{"type":"input_json_delta","partial_json":"a\\": 1.50}"}}',
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":2}',
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},'
        '"usage":{"input_tokens":3,"output_tokens":4}}',
        'event: message_stop\ndata: {"type":"message_stop"}',
        "",
    ]


def test_a_whole_message() -> None:
    answer = renderer().whole([Delta(f"<think>hm</think>ok{CALL}", 4, "stop")], USAGE)
    assert msgspec.json.encode(answer).decode() == (
        '{"type":"message","id":"msg_r","role":"assistant","model":"m","content":['
        '{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"ok"},'
        '{"type":"tool_use","id":"call_861325fadc4b55507881f26e","name":"get","input":{"a": 1.50}}],'
        '"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":4}}'
    )


@pytest.mark.parametrize(
    ("text", "reason", "stop", "expected"),
    [
        ("ok", "stop", None, ("end_turn", None)),
        ("ok", "length", None, ("max_tokens", None)),
        ("ok", "stop", "END", ("stop_sequence", "END")),
        (CALL, "stop", None, ("tool_use", None)),
        (CALL, "stop", "END", ("tool_use", None)),
        (CALL[:43], "stop", "END", ("stop_sequence", "END")),
        (CALL + CALL[:43], "length", None, ("max_tokens", None)),
    ],
)
def test_why_it_ended(text: str, reason: FinishReason, stop: str | None, expected: tuple[str, str | None]) -> None:
    for message in (whole(text, reason, stop), accumulated(transcript([text], reason, stop))):
        assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_tokens_that_were_cached_are_counted_apart() -> None:
    """All three of Anthropic's counts together are the prompt."""
    usage = Usage(30, 4, 34, PromptTokensDetails(16), CompletionTokensDetails(3))
    answer = renderer().whole([Delta("ok", 4, "stop")], usage)
    assert msgspec.to_builtins(answer.usage) == {
        "input_tokens": 14,
        "cache_read_input_tokens": 16,
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_an_answer_without_a_token_of_text_has_an_empty_text() -> None:
    assert whole("")["content"] == [{"type": "text", "text": ""}]
    assert accumulated(transcript([""]))["content"] == [{"type": "text", "text": ""}]


def test_thoughts_that_are_not_to_be_seen_keep_their_block() -> None:
    expected = [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": "ok"}]
    assert whole("<think>hm</think>ok", shows_thoughts=False)["content"] == expected
    stream = transcript(["<think>h", "m</think>ok"], shows_thoughts=False)
    assert "thinking_delta" not in stream
    assert accumulated(stream)["content"] == expected


def test_a_call_that_the_limit_cuts_has_no_input_to_tell() -> None:
    """A stream has shown what came of it."""
    assert whole(f"so{CALL[:47]}", "length")["content"] == [{"type": "text", "text": "so"}]
    text, call = accumulated(transcript([f"so{CALL[:47]}"], "length"))["content"]
    assert (text["text"], call["name"], call["input"]) == ("so", "get", '{"a": ')


def test_a_call_with_half_a_character_is_told_with_a_mark_in_its_place() -> None:
    message = whole(CALL.replace("1.50", r'"\ud800 \ud83d\ude00"'))
    [block] = message["content"]
    assert (block["type"], block["input"], message["stop_reason"]) == ("tool_use", {"a": "\ufffd 😀"}, "tool_use")


def test_a_stream_that_fails_ends_with_the_error() -> None:
    writer = renderer()
    writer.opening(Usage(3, 0, 3))
    (event,) = writer.failed(errors.no_endpoints("no node"))
    assert written(event).decode() == (
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no node","param":null,'
        '"code":"no_endpoints"},"request_id":"r"}\n\n'
    )


TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "a", " ", CALL, "<tool_call>", "{", "\n", "é"]), max_size=8)


@given(TEXTS, st.data(), st.sampled_from(["stop", "length"]), st.booleans())
def test_however_the_text_is_cut_the_stream_makes_the_whole_message(
    parts: list[str], data: st.DataObject, reason: FinishReason, shows_thoughts: bool
) -> None:
    text = "".join(parts)
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=6))})
    pieces = [text[begin:end] for begin, end in pairwise(cuts)] or [""]
    message = accumulated(transcript(pieces, reason, shows_thoughts=shows_thoughts))
    message["content"] = [block for block in message["content"] if _read_input(block)]
    assert message == whole(text, reason, shows_thoughts=shows_thoughts)


def _read_input(block: dict[str, Any]) -> bool:
    """Whether it is no call, or one with a whole input, which is read."""
    if block["type"] != "tool_use":
        return True
    try:
        block["input"] = json.loads(block["input"])
    except json.JSONDecodeError:
        return False
    return True
