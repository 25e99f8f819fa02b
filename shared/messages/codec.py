"""MessagePack encoding of messages. One decoder for all; what cannot be decoded is the caller's dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgspec

from shared.messages.message import Message, Tick
from shared.messages.messages import AnyMessage
from shared.messages.payload import Payload

FIELD = b"m"  # the only field of a stream entry

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_known: dict[type, tuple[tuple[str, object], ...]] = {}
_payload_decoder = msgspec.msgpack.Decoder(Payload)


class UndecodableError(ValueError):
    """Bytes that are no message of this version."""


def encode(message: Message | Payload) -> bytes:
    """Encode a message or a payload as MessagePack."""
    return _encoder.encode(_compact(message) if isinstance(message, Payload) else message)


def _compact(record: object) -> Mapping[str, object]:
    """A dataclass as messages are written: what has its default is left out, as far down as dataclasses go."""
    values: dict[str, object] = {}
    for name, default in _defaults(type(record)):
        value = getattr(record, name)
        if is_dataclass(value):
            values[name] = _compact(value)
        elif value != default:
            is_records = isinstance(value, list) and bool(value) and is_dataclass(value[0])
            values[name] = [_compact(one) for one in value] if is_records else value
    return values


def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """Fields of a dataclass with what they are if nobody says otherwise; `MISSING` where that has to be said."""
    known = _known.get(kind)
    if known is None:
        known = _known[kind] = tuple(
            (field.name, field.default if field.default_factory is MISSING else field.default_factory())
            for field in fields(kind)
        )
    return known


def decode(data: bytes) -> AnyMessage:
    """Decode one message; raises `UndecodableError` that says what is wrong."""
    message: AnyMessage = _decode(_decoder, data)
    return message


def decode_entry(fields: dict[bytes, bytes]) -> AnyMessage:
    """Decode a stream entry; an entry without the message field is undecodable too."""
    data = fields.get(FIELD)
    if data is None:
        raise UndecodableError("entry has no field 'm'")
    return decode(data)


def decode_payload(data: bytes) -> Payload:
    """Decode a payload key; raises `UndecodableError` that says what is wrong."""
    payload: Payload = _decode(_payload_decoder, data)
    return payload


def _decode(decoder: Any, data: bytes) -> Any:
    """Whatever a decoder raises, the bytes are at fault.

    Not only msgspec's own errors come: text that is no UTF-8 raises `UnicodeDecodeError`, deep nesting
    `RecursionError`, a timestamp that no calendar has `ValueError`.
    """
    try:
        return decoder.decode(data)
    except Exception as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


TICK = encode(Tick())
