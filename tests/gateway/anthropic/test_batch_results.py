from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gateway.anthropic.batch_results import result_line, result_pieces

MESSAGE = {"type": "message", "id": "msg_1", "content": [{"type": "text", "text": "a\nb"}]}
ERROR = {"type": "error", "error": {"type": "not_found_error", "message": "no model"}, "request_id": "r-1"}


def line(custom_id: str, status: int = 200, body: Any = MESSAGE, code: str = "") -> bytes:
    """As the batch service writes it."""
    answer = {"status_code": status, "request_id": "r-1", "body": body}
    why = {"code": code, "message": "because"}
    found = {"id": "batch_req_0_0", "custom_id": custom_id, "response": None if code else answer}
    return json.dumps(found | {"error": why if code else None}).encode() + b"\n"


def told(data: bytes) -> Any:
    return json.loads(result_line(data))


def test_an_answer_is_told_as_the_gateway_wrote_it() -> None:
    assert told(line("a")) == {"custom_id": "a", "result": {"type": "succeeded", "message": MESSAGE}}


def test_an_error_is_told_as_the_gateway_wrote_it() -> None:
    assert told(line("a", 404, ERROR)) == {"custom_id": "a", "result": {"type": "errored", "error": ERROR}}


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "too large", "type": "server_error", "code": "answer_too_large"}}, "too large", None),
        ({}, "", ""),
    ],
)
def test_an_error_in_another_shape_is_told_in_anthropic_s(body: Any, message: str, code: str | None) -> None:
    result = told(line("a", 500, body))["result"]

    assert result == {
        "type": "errored",
        "error": {
            "type": "error",
            "error": {
                "type": "api_error",
                "message": message,
                "param": None,
                "code": "answer_too_large" if code is None else code,
            },
            "request_id": "r-1",
        },
    }


@pytest.mark.parametrize(("code", "kind"), [("batch_cancelled", "canceled"), ("batch_expired", "expired")])
def test_a_request_without_an_answer_says_why(code: str, kind: str) -> None:
    assert told(line("a", code=code)) == {"custom_id": "a", "result": {"type": kind}}


def test_a_revoked_key_is_an_error() -> None:
    error = told(line("a", code="key_revoked"))["result"]["error"]

    assert error == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "because", "param": None, "code": "key_revoked"},
        "request_id": "batch_req_0_0",
    }


@pytest.mark.parametrize("data", [b"", b"{}", b"[", line("a")[:-20]])
def test_another_line_is_none(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        result_line(data)


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
async def test_lines_are_told_wherever_the_pieces_end(size: int) -> None:
    data = line("a") + line("b", 404, ERROR) + line("c", code="batch_expired")

    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(data), size):
            yield data[begin : begin + size]

    found = b"".join([piece async for piece in result_pieces(pieces())])

    assert [json.loads(one)["custom_id"] for one in found.splitlines()] == ["a", "b", "c"]
    assert found.endswith(b"\n")
