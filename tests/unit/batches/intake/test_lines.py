from __future__ import annotations

import io
import json
from typing import Any

import pytest

from services.batches.intake.lines import MAX_PROBLEMS, InputLines, check_lines, read_request
from shared.messages.batches.batches import LineProblem

CHAT = "/v1/chat/completions"
MOST = 200


def line(custom_id: Any = "a", **other: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": {"model": "m"}} | other


def checked(*lines: object, max_requests: int = 10) -> InputLines:
    data = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines)
    return check_lines(io.BytesIO(data), CHAT, max_requests, MOST)


def problem(*lines: object, max_requests: int = 10) -> tuple[str, int | None, str | None]:
    (found,) = checked(*lines, max_requests=max_requests).problems
    return found.code, found.line, found.param


def test_requests_are_found_by_their_places_and_empty_lines_are_none() -> None:
    first, second = json.dumps(line("a")).encode() + b"\n", json.dumps(line("b")).encode()
    data = first + b"\n  \n" + second

    found = check_lines(io.BytesIO(data), CHAT, 10, MOST)

    assert not found.problems
    assert list(found.begins) == [0, len(first) + 4]
    places = zip(found.begins, found.lengths, strict=True)
    assert [read_request(data[begin : begin + length]).custom_id for begin, length in places] == ["a", "b"]


def test_empty_lines_are_as_many_as_requests_may_be() -> None:
    assert not checked(b"\n" * 9, line("a"), b" \n" * 10).problems
    assert problem(b"\n" * 9, line("a"), b" \n" * 11) == ("too_many_lines", 21, None)
    assert [one.code for one in checked(b"\n" * 1000).problems] == ["too_many_lines"]


def test_a_body_is_what_its_client_wrote() -> None:
    body = b'{"model": "m",  "seed": 12345678901234567890123, "temperature": 1.10}'

    assert bytes(read_request(b'{"custom_id": "a", "body": %s}' % body).body) == body


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([b"[1, 2]\n"], ("invalid_request", 1, None)),
        ([b'{"custom_id": "a"\n'], ("invalid_json_line", 1, None)),
        ([b'{"custom_id": "\xff"}\n'], ("invalid_json_line", 1, None)),
        ([line(), {"custom_id": "b"}], ("invalid_request", 2, None)),
        ([line(priority=1)], ("invalid_request", 1, None)),
        ([line(custom_id=3)], ("invalid_request", 1, None)),
        ([line("")], ("invalid_custom_id", 1, "custom_id")),
        ([line("a"), line("b"), line("a")], ("duplicate_custom_id", 3, "custom_id")),
        ([line(method="GET")], ("invalid_method", 1, "method")),
        ([line(url="/v1/completions")], ("mismatched_endpoint", 1, "url")),
        ([line(body={"stream": True})], ("stream_not_allowed", 1, "body.stream")),
        ([line("a" * MOST)], ("line_too_long", 1, None)),
        ([b"", b"\n"], ("empty_file", None, None)),
    ],
)
def test_a_line_that_is_none_is_told_with_its_number(
    lines: list[object], found: tuple[str, int | None, str | None]
) -> None:
    assert problem(*lines) == found


def test_all_problems_are_told_at_once_up_to_a_bound() -> None:
    wrong = [line(f"{number}", method="GET") for number in range(MAX_PROBLEMS + 5)]

    found = checked(line("first"), *wrong, max_requests=1000)

    assert [one.line for one in found.problems] == list(range(2, MAX_PROBLEMS + 2))


def test_more_requests_than_a_batch_may_have() -> None:
    assert not checked(line("a"), line("b"), max_requests=2).problems
    assert problem(line("a"), line("b"), line("c"), max_requests=2) == ("too_many_requests", 3, None)


def test_what_is_told_is_bounded() -> None:
    url = checked(line(url="/" + "x" * 120)).problems

    assert url == [
        LineProblem(
            code="mismatched_endpoint",
            message=f"the batch is for {CHAT}, not {'/' + 'x' * 63!r}",
            line=1,
            param="url",
        )
    ]
