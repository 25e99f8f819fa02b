"""Bytes that are no message: one kind of error, and its text says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from shared.messages.codec import FIELD, UndecodableError, decode, decode_entry, decode_payload, encode
from shared.messages.message import Tick
from shared.messages.requests.requests import Cancel
from tests.contract.examples import EXAMPLES, PAYLOAD
from tests.contract.other_side import pack, unpack

CANCEL = {"type": "cancel", "request_id": "r-1"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"type": "unheard-of"}, "Invalid value 'unheard-of' - at `$.type`"),
        ({"request_id": "r-1"}, "missing required field `type`"),
        ({"type": "cancel"}, "missing required field `request_id`"),
        (CANCEL | {"request_id": 7}, "Expected `str`, got `int` - at `$.request_id`"),
        (CANCEL | {"traceparent": None}, "Expected `str`, got `None` - at `$.traceparent`"),
        ({"type": "abort", "requests": [{"request_id": "r-1"}]}, "`attempt` - at `$.requests[0]`"),
        ([1, 2], "Expected `object`, got `array`"),
        (None, "Expected `object`, got `None`"),
    ],
)
def test_the_text_names_the_place(fields: Any, text: str) -> None:
    with pytest.raises(UndecodableError) as caught:
        decode(pack(fields))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "truncated"), (encode(Cancel(request_id="r-1"))[:-1], "truncated"), (encode(Tick()) + b"\x00", "trailing")],
)
def test_bytes_that_are_cut_or_continued(data: bytes, text: str) -> None:
    with pytest.raises(UndecodableError, match=text):
        decode(data)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_no_cut_message_is_read_as_another(message: Any) -> None:
    data = encode(message)
    for length in range(len(data)):
        with pytest.raises(UndecodableError):
            (decode_payload if message is PAYLOAD else decode)(data[:length])


def test_an_entry_without_the_field_is_undecodable() -> None:
    with pytest.raises(UndecodableError, match="entry has no field 'm'"):
        decode_entry({b"other": encode(Tick())})
    assert decode_entry({FIELD: encode(Tick()), b"other": b"ignored"}) == Tick()


def test_a_payload_says_what_is_missing() -> None:
    with pytest.raises(UndecodableError, match="missing required field `attempt`"):
        decode_payload(pack({"request_id": "r-1"}))
    with pytest.raises(UndecodableError, match=r"`\$.prompt_token_ids\[1\]`"):
        decode_payload(pack(unpack(encode(PAYLOAD)) | {"prompt_token_ids": [1, "x"]}))
