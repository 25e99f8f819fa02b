"""What a body would make of itself is counted before it is decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.http.body import MAX_INLINE_BYTES, parse_body, read_timeout_s
from gateway.http.body_shape import MAX_ARRAYS, MAX_ITEMS, MAX_OBJECTS, MAX_STRINGS, STEP_BYTES, Shape, check_steps
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import MAX_MESSAGES, ChatCompletionRequest, CompletionRequest


def shape_of(data: bytes) -> Shape:
    return list(check_steps(data))[-1]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({}, Shape(0, 1, 0, 0)),
        ({"a": 1, "b": [2, 3, 4]}, Shape(4, 1, 1, 3)),
        ('{"no": ["object", {}]}', Shape(2, 0, 0, 0)),
        ([r"ends with a backslash \\", "[", r"\"", '"', r"\\", ""], Shape(12, 0, 1, 5)),
        ([["\n", "\t\\", "\\u0022"], {"é": "\ud83d\ude00"}], Shape(10, 1, 2, 3)),
    ],
)
def test_shape(value: Any, shape: Shape) -> None:
    assert shape_of(json.dumps(value).encode()) == shape


@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("unit", ["\\", '\\"', '"', "[]{},", "é\\\\\n"])
def test_a_string_may_go_on_from_step_to_step(unit: str, offset: int) -> None:
    text = "x" * offset + unit * STEP_BYTES
    assert shape_of(json.dumps([text, {"a": 1}]).encode()) == Shape(4, 1, 1, 1)


TURN = {"role": "user", "content": "x"}


def lists(num: int, item: str) -> bytes:
    return f'{{"model": "m", "prompt": [{",".join([item] * num)}]}}'.encode()


@pytest.mark.parametrize(
    ("most", "item", "what", "limit"),
    [
        (MAX_ARRAYS - 1, "[]", "lists", MAX_ARRAYS),
        (MAX_OBJECTS - 1, "{}", "objects", MAX_OBJECTS),
        (MAX_ITEMS, "1", "items in lists and objects", MAX_ITEMS),
        (MAX_STRINGS - 3, '""', "strings", MAX_STRINGS),
        (MAX_STRINGS - 3, r'"\\"', "strings", MAX_STRINGS),
    ],
)
def test_more_than_any_request_has_is_refused(most: int, item: str, what: str, limit: int) -> None:
    shape_of(lists(most, item))
    with pytest.raises(ApiError) as error:
        shape_of(lists(most + 1, item))
    assert (error.value.status, error.value.code) == (400, "body_too_complex")
    assert error.value.message == f"the body has more than {limit} {what}, which are as many as are taken"


def test_what_is_too_much_is_told_without_looking_at_the_rest() -> None:
    steps = check_steps(lists(40 * MAX_ARRAYS, "[]"))
    with pytest.raises(ApiError):
        next(steps)


def test_the_largest_requests_are_taken() -> None:
    parts = [{"type": "text", "text": '{"a": [1, "b"]}\\'}] * 3
    turns = [{"role": "user", "name": "x", "content": parts}] * MAX_MESSAGES
    body = json.dumps({"model": "m", "messages": turns}).encode()
    shape_of(body)
    assert len(parse_body(body, ChatCompletionRequest).messages) == MAX_MESSAGES
    ids = [[1] * 4096] * 64
    body = json.dumps({"model": "m", "prompt": ids}).encode()
    shape_of(body)
    assert parse_body(body, CompletionRequest).prompt == ids


@pytest.mark.parametrize("size", [2, MAX_INLINE_BYTES])
def test_of_many_unknown_fields_the_first_is_told(size: int) -> None:
    unknown = {f"field-{number}": 1 for number in range(size)}
    turns = [TURN | unknown, {"role": "nobody"}]
    for body, param in (
        ({"model": "m", "messages": [TURN], **unknown}, "field-0"),
        ({"model": "m", "messages": turns}, "messages[0].field-0"),
    ):
        with pytest.raises(ApiError) as error:
            parse_body(json.dumps(body).encode(), ChatCompletionRequest)
        assert (error.value.code, error.value.param) == ("unknown_parameter", param)


def test_a_client_is_not_sent_its_own_megabytes() -> None:
    with pytest.raises(ApiError) as error:
        parse_body(json.dumps({"model": "m", "prompt": "x", "y" * 100_000: 1}).encode(), CompletionRequest)
    assert error.value.param == "y" * 64 + "…"
    assert len(error.value.message) < 100


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"metadata": {str(key): "" for key in range(17)}}, "metadata", "it has at most 16 keys, not 17"),
        ({"metadata": {"k" * 65: ""}}, f"metadata.{'k' * 64}….[key]", "at most 64 characters"),
        ({"metadata": {"key": "v" * 513}}, "metadata.key", "at most 512 characters"),
        ({"metadata": {"key": {"nested": "object"}}}, "metadata.key", "a valid string"),
        ({"user": "u" * 513}, "user", "at most 512 characters"),
        ({"safety_identifier": "u" * 513}, "safety_identifier", "at most 512 characters"),
        ({"prompt_cache_key": "u" * 513}, "prompt_cache_key", "at most 512 characters"),
        ({"model": "m" * 257}, "model", "at most 256 characters"),
        ({"slo": "c" * 257}, "slo.class_name", "at most 256 characters"),
        ({"prompt": ["x"] * 65}, "prompt", "a request has at most 64 prompts, not 65"),
        ({"logit_bias": {str(key): 1 for key in range(1025)}}, "logit_bias", "it has at most 1024 token ids, not 1025"),
    ],
)
def test_what_is_taken_and_not_used_is_bounded(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(ApiError) as error:
        parse_body(json.dumps({"model": "m", "prompt": "x", **fields}).encode(), CompletionRequest)
    assert (error.value.status, error.value.code, error.value.param) == (400, "invalid_value", param)
    assert message in error.value.message


def test_metadata_as_openai_has_it_is_taken() -> None:
    metadata = {f"{key:64}": "v" * 512 for key in range(16)}
    body = json.dumps({"model": "m", "prompt": "x", "metadata": metadata}).encode()
    assert parse_body(body, CompletionRequest).metadata == metadata


def test_a_body_has_as_much_time_as_its_size_needs() -> None:
    assert [read_timeout_s(size) for size in (0, 64 << 10, 4 << 20)] == [10.0, 11.0, 74.0]
