"""The events of an answer, one by one; and that they add up to what a whole answer says."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.event import written
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.openai.answers.answers import CompletionTokensDetails, FinishReason, PromptTokensDetails, Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors import errors
from gateway.reasoning.marks import THINK, ThoughtReading
from gateway.responses.rendering.counts import counted
from gateway.responses.rendering.renderer import ResponsesRenderer
from gateway.responses.requests.request import ResponsesRequest
from gateway.tools.notation import NOTATIONS

THOUGHTS = ThoughtReading(THINK, is_open=False)
CALLS = CallReading(NOTATIONS["hermes"], {"get": None}, is_single=False)
CALL = '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'
USAGE = Usage(3, 4, 7, PromptTokensDetails(2), CompletionTokensDetails(1))
BODY = ResponsesRequest.model_validate({"model": "m", "input": "hi", "metadata": {"k": "v"}})


def renderer() -> ResponsesRenderer:
    return ResponsesRenderer(BODY, ChoiceReading(THOUGHTS, CALLS, "r", 0), "r", 7)


def events(pieces: list[str], reason: FinishReason = "stop") -> list[dict[str, Any]]:
    """All of a stream, as its client reads them."""
    writer = renderer()
    found = [*writer.opening(Usage(3, 0, 3))]
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        found += writer.events(Delta(piece, 1, reason if is_last else None))
    found += writer.closing(USAGE)
    return [parsed(written(event)) for event in found]


def parsed(event: bytes) -> dict[str, Any]:
    name, data, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    value: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert name == f"event: {value['type']}"
    return value


def whole(text: str, reason: FinishReason = "stop") -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(renderer().whole([Delta(text, 4, reason)], USAGE))
    return value


def short(event: dict[str, Any]) -> str:
    texts = [event[name] for name in ("delta", "text", "arguments") if name in event]
    place = "" if "output_index" not in event else f" {event['output_index']}"
    kind: str = event["type"]
    return kind.removeprefix("response.") + place + "".join(f" {text!r}" for text in texts)


def test_thoughts_text_and_a_call() -> None:
    found = events(["<think>hm", "</think>o", "k", CALL[:30], CALL[30:]])
    assert [short(event) for event in found] == [
        "created",
        "in_progress",
        "output_item.added 0",
        "content_part.added 0",
        "reasoning_text.delta 0 'hm'",
        "reasoning_text.done 0 'hm'",
        "content_part.done 0",
        "output_item.done 0",
        "output_item.added 1",
        "content_part.added 1",
        "output_text.delta 1 'o'",
        "output_text.delta 1 'k'",
        "output_text.done 1 'ok'",
        "content_part.done 1",
        "output_item.done 1",
        "output_item.added 2",
        """function_call_arguments.delta 2 '{"a": 1}'""",
        """function_call_arguments.done 2 '{"a": 1}'""",
        "output_item.done 2",
        "completed",
    ]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert found[-1]["response"]["status"] == "completed"
    assert found[-1]["response"]["output"] == [event["item"] for event in found if event["type"].endswith("item.done")]


def test_the_answer_says_what_was_asked_for() -> None:
    answer = whole("ok")
    assert answer["output"] == [
        {
            "type": "message",
            "id": "msg_r_0",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
        }
    ]
    assert answer["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 7,
    }
    assert msgspec.to_builtins(counted(Usage(3, 4, 7))) == {
        "input_tokens": 3,
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }
    del answer["output"], answer["usage"]
    assert answer == {
        "id": "resp_r",
        "object": "response",
        "created_at": 7,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {"k": "v"},
        "model": "m",
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }


@pytest.mark.parametrize("text", ["<think>hm", "half a", '<tool_call>\n{"name": "get", "arguments": {"a'])
def test_an_answer_that_is_cut_is_incomplete_with_its_last_item(text: str) -> None:
    answer = whole("<think>hm</think>" * (not text.startswith("<think>")) + text, "length")
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    *others, last = answer["output"]
    assert [item["status"] for item in others] == ["completed"] * len(others)
    assert last["status"] == "incomplete"
    assert short(events([text], "length")[-1]) == "incomplete"


def test_an_answer_without_a_token_of_text_has_an_empty_message() -> None:
    assert whole("")["output"][0]["content"][0]["text"] == ""
    assert [short(event) for event in events([""])][2:] == [
        "output_item.added 0",
        "content_part.added 0",
        "output_text.done 0 ''",
        "content_part.done 0",
        "output_item.done 0",
        "completed",
    ]


def test_a_stream_that_fails_says_why_and_what_came() -> None:
    writer = renderer()
    writer.opening(Usage(3, 0, 3))
    writer.events(Delta("so f", 1))
    told = [parsed(written(event)) for event in writer.failed(errors.no_endpoints("no node"))]
    assert told[0] == {
        "type": "error",
        "sequence_number": 5,
        "code": "no_endpoints",
        "message": "no node",
        "param": None,
    }
    assert told[1]["type"] == "response.failed"
    assert told[1]["response"]["status"] == "failed"
    assert told[1]["response"]["error"] == {"code": "no_endpoints", "message": "no node"}
    assert told[1]["response"]["output"][0]["content"][0]["text"] == "so f"


TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "a", " ", CALL, "<tool_call>", "{", "\n"]), max_size=8)


@given(TEXTS, st.data(), st.sampled_from(["stop", "length"]))
def test_however_the_text_is_cut_the_stream_ends_with_the_whole_answer(
    parts: list[str], data: st.DataObject, reason: FinishReason
) -> None:
    text = "".join(parts)
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=6))})
    pieces = [text[begin:end] for begin, end in pairwise(cuts)] or [""]
    found = events(pieces, reason)
    answer = found[-1]["response"]
    assert answer == whole(text, reason)
    for number, item in enumerate(answer["output"]):
        deltas = [one["delta"] for one in found if one.get("output_index") == number and "delta" in one]
        said = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(deltas) == said
