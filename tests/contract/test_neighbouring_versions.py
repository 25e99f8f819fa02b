"""Two versions side by side: a newer one adds fields, an older one leaves new fields out."""

from __future__ import annotations

from typing import Any

import pytest

from shared.messages.codec import decode, decode_payload, encode
from shared.messages.message import Message
from shared.messages.requests.payload import Payload
from tests.contract.examples import EXAMPLES, least, name
from tests.contract.other_side import pack, unpack

UNKNOWN = {"added_later": {"deep": [1, None]}}


def with_unknown_fields(value: Any) -> Any:
    """An unknown field in every map, except in one whose keys are data."""
    if isinstance(value, list):
        return [with_unknown_fields(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: part if key in ("queues", "num_nodes") else with_unknown_fields(part) for key, part in value.items()
    } | UNKNOWN


def read(message: Message | Payload, fields: dict[str, Any]) -> Message | Payload:
    data = pack(fields)
    return decode_payload(data) if isinstance(message, Payload) else decode(data)


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_unknown_fields_are_ignored_at_every_depth(message: Message | Payload) -> None:
    fields = with_unknown_fields(unpack(encode(message)))
    assert "added_later" in fields
    assert read(message, fields) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_fields_with_a_default_may_be_missing(message: Message | Payload) -> None:
    fields = unpack(encode(least(message)))
    assert "traceparent" not in fields
    assert read(message, fields) == least(message)


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_a_default_that_is_written_out_is_read_as_well(message: Message | Payload) -> None:
    fields = unpack(encode(least(message)))
    assert read(message, fields | {"traceparent": ""}) == least(message)
