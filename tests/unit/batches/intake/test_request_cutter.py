from __future__ import annotations

import json
from typing import Any

import pytest

from services.batches.intake.request_cutter import MAX_HEAD_BYTES, RequestCutter
from services.batches.refused import RefusedError

MOST = 200
TRICKY: list[Any] = [
    {},
    {"a": 'quote " brace } bracket ] backslash \\'},
    {"\\": "\\\\", "": ["]", "}", {"b": [[], {}]}]},
    {"text": "ü€😀\u2028", "number": 1.5e300, "none": None},
]


def cut(data: bytes, size: int) -> list[bytes]:
    cutter = RequestCutter(MOST)
    found = [one for begin in range(0, len(data), size) for one in cutter.feed(data[begin : begin + size])]
    cutter.close()
    return found


def refused(data: bytes, size: int = 7) -> tuple[int, str, str | None]:
    with pytest.raises(RefusedError) as error:
        cut(data, size)
    return error.value.status, error.value.refusal.code, error.value.refusal.param


@pytest.mark.parametrize("size", range(1, 40))
@pytest.mark.parametrize("indent", [None, 2])
def test_requests_are_found_wherever_the_pieces_end(size: int, indent: int | None) -> None:
    for is_ascii in (True, False):
        data = json.dumps({"requests": TRICKY}, indent=indent, ensure_ascii=is_ascii).encode()

        assert [json.loads(one) for one in cut(b" \n" + data + b"\r\n", size)] == TRICKY


def test_a_request_is_what_its_client_wrote() -> None:
    assert cut(b'{"requests":[{"a" :  1.10},{ }]}', 100) == [b'{"a" :  1.10}', b"{ }"]


def test_a_list_may_be_empty() -> None:
    assert cut(b'{"requests": [ ] }', 3) == []


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", (400, "invalid_json", None)),
        (b'{"requests"', (400, "invalid_json", None)),
        (b"{}", (400, "missing_required_parameter", "requests")),
        (b'{"other": []}', (400, "missing_required_parameter", "requests")),
        (b"[1]", (400, "invalid_value", "requests")),
        (b'{"requests": {}}', (400, "invalid_value", "requests")),
        (b'{"a": 1, "requests": []}', (400, "invalid_value", "requests")),
        (b" " * (MAX_HEAD_BYTES + 1) + b'{"requests": []}', (400, "invalid_json", None)),
        (b'{"requests": [{}, 5]}', (400, "invalid_value", "requests[1]")),
        (b'{"requests": [[]]}', (400, "invalid_value", "requests[0]")),
        (b'{"requests": [{},]}', (400, "invalid_value", "requests[1]")),
        (b'{"requests": [,{}]}', (400, "invalid_value", "requests[0]")),
        (b'{"requests": [{} {}]}', (400, "invalid_json", "requests[1]")),
        (b'{"requests": [{}', (400, "invalid_json", None)),
        (b'{"requests": [{"a": "', (400, "invalid_json", None)),
        (b'{"requests": [{}]', (400, "invalid_json", None)),
        (b'{"requests": [{}], "b": 1}', (400, "unknown_parameter", None)),
        (b'{"requests": [{}]} {}', (400, "unknown_parameter", None)),
        (b'{"requests": [{"a": "%s"}]}' % (b"x" * MOST), (413, "request_entity_too_large", "requests[0]")),
        (b'{"requests": [{}, {"a": [%s' % (b"[" * MOST), (413, "request_entity_too_large", "requests[1]")),
    ],
)
def test_a_body_that_is_no_list_of_requests_is_told_where(data: bytes, found: tuple[int, str, str | None]) -> None:
    assert refused(data) == found


def test_no_more_than_a_request_is_held() -> None:
    """Spaces and requests that were given out are not kept."""
    cutter = RequestCutter(MOST)
    assert list(cutter.feed(b'{"requests": [' + b" " * 100_000)) == []
    assert list(cutter.feed(b'{"a": 1}, ' * 1000 + b'{"b')) == [b'{"a": 1}'] * 1000

    assert len(cutter._left) == len(b'{"b')
