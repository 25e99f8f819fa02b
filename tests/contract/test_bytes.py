"""The bytes of every message, as `messages.txt` pins them and as an independent reader sees them.

A difference means that running clusters cannot be upgraded piece by piece. If that is wanted, or a message was added:
``TREADLE_REGENERATE=1 pytest tests/contract`` rewrites the file (and fails, so that nobody passes by mistake).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest

from shared.messages.codec import decode, decode_payload, encode
from shared.messages.message import Message
from shared.messages.messages import AnyMessage
from shared.messages.requests.payload import Payload
from tests.contract.examples import EXAMPLES, MESSAGES, fields, is_record, least, name
from tests.contract.other_side import pack, unpack

GOLDEN = Path(__file__).with_name("messages.txt")
REGENERATE = os.environ.get("TREADLE_REGENERATE") == "1"
HEADER = """\
Bytes of every message: once with all fields, once with nothing that has a default.
Each as the msgpack library reads it, as this version of Treadle reads it (defaults filled in), and as it travels.
"""


def page() -> str:
    """What `messages.txt` says when nothing has changed."""
    parts = [HEADER]
    for example in EXAMPLES:
        parts += [block(name(example), example), block(f"{name(example)}, least", least(example))]
    return "\n".join(parts)


def block(title: str, message: Message | Payload) -> str:
    data = encode(message)
    return "\n".join([f"== {title}", json.dumps(unpack(data), default=bytes.hex), repr(message), data.hex(" ", -8), ""])


def pinned() -> dict[str, list[str]]:
    """Blocks of the file: title, then JSON, repr and hex."""
    blocks = GOLDEN.read_text().split("\n== ")[1:]
    return {lines[0]: lines[1:4] for lines in (text.splitlines() for text in blocks)}


def read(message: Message | Payload, data: bytes) -> Message | Payload:
    return decode_payload(data) if isinstance(message, Payload) else decode(data)


def test_no_byte_has_changed() -> None:
    if REGENERATE:
        GOLDEN.write_text(page())
        pytest.fail(f"{GOLDEN.name} is written anew: look at its diff, then run without TREADLE_REGENERATE")
    assert GOLDEN.read_text() == page()


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_pinned_bytes_are_read_as_the_message(message: Message | Payload) -> None:
    for title, expected in ((name(message), message), (f"{name(message)}, least", least(message))):
        _, _, data = pinned()[title]
        assert read(message, bytes.fromhex(data)) == expected


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_an_independent_reader_finds_every_field_by_its_name(message: Message | Payload) -> None:
    found = unpack(encode(message))
    assert json.loads(json.dumps(found, default=bytes.hex)) == json.loads(pinned()[name(message)][0])
    assert found == plain(message)


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_what_an_independent_writer_packs_is_the_message(message: Message | Payload) -> None:
    reordered = dict(reversed(unpack(encode(message)).items()))
    assert read(message, pack(reordered)) == message


def test_every_message_has_an_example() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(AnyMessage))
    assert len(MESSAGES) == len(get_args(AnyMessage))


@pytest.mark.parametrize("message", EXAMPLES, ids=name)
def test_examples_set_every_field(message: Message | Payload) -> None:
    assert unset(message) == []


def plain(value: Any) -> Any:
    """Structs as dictionaries, built without the encoder under test."""
    if is_record(value) and not isinstance(value, tuple):
        tag = {"type": type(value).__name__.lower()} if isinstance(value, Message) else {}
        return tag | {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def unset(value: Any) -> list[str]:
    """Names of fields, here and inside, that are left at their default."""
    if isinstance(value, list):
        return [name for part in value for name in unset(part)]
    if not is_record(value):
        return []
    left = [
        f"{type(value).__name__}.{field.name}"
        for field in fields(value)
        if not field.required and getattr(value, field.name) in (field.default, [])
    ]
    return left + [name for field in fields(value) for name in unset(getattr(value, field.name))]
