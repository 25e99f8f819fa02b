"""MessagePack encoding of messages. One decoder for all; what cannot be decoded is the caller's dead letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from shared.messages.message import Message
from shared.messages.messages import AnyMessage
from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import bare

FIELD = b"m"  # the only field of a stream entry

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_payload_decoder = msgspec.msgpack.Decoder(Payload)
_pictures_decoder = msgspec.msgpack.Decoder(list[bytes])


class UndecodableError(ValueError):
    """Bytes that are no message of this version."""


def encode(message: Message | Payload) -> bytes:
    """Encode a message or a payload as MessagePack."""
    return _encoder.encode(_compact(message) if isinstance(message, Payload) else message)


def _compact(record: Any) -> dict[str, object]:
    """A dataclass as messages are written: what has its default is left out, as far down as dataclasses go."""
    kind = type(record)
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = _shape_of(kind)
    values = {
        name: value
        for name, value, default in zip(shape.names, shape.values(record), shape.defaults, strict=True)
        if value != default
    }
    for name in shape.records:
        if name in values:
            values[name] = _compact(values[name])
    for name in shape.lists:
        if name in values:
            values[name] = [_compact(one) for one in values[name]]
    return values


@dataclass(frozen=True, slots=True)
class _Shape:
    """What there is to know of a dataclass before it is written; looked up once a class."""

    names: tuple[str, ...]
    values: Callable[[object], tuple[Any, ...]]
    """All fields of a record, in the order of ``names``."""
    defaults: tuple[object, ...]
    """What a field is unless it is said otherwise; `MISSING` where that has to be said."""
    records: tuple[str, ...]
    """Fields that are dataclasses."""
    lists: tuple[str, ...]
    """Fields that are lists of dataclasses."""


_shapes: dict[type, _Shape] = {}


def _shape_of(kind: type) -> _Shape:
    """Of a dataclass of two fields or more."""
    names = tuple(field.name for field in fields(kind))
    hints = get_type_hints(kind)
    return _Shape(
        names,
        attrgetter(*names),
        tuple(field.default if field.default_factory is MISSING else field.default_factory() for field in fields(kind)),
        tuple(name for name in names if _has_record(hints[name]) and get_origin(hints[name]) is not list),
        tuple(name for name in names if _has_record(hints[name]) and get_origin(hints[name]) is list),
    )


def _has_record(hint: object) -> bool:
    """Whether it is a dataclass, one or None (which is its default, and so is not written), or several."""
    return is_dataclass(hint) or any(map(is_dataclass, get_args(hint)))


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


def encode_apart(payload: Payload) -> tuple[bytes, bytes]:
    """A payload without the content of its images, and that content; empty where it has none."""
    if not payload.pictures:
        return encode(payload), b""
    contents = _encoder.encode([picture.content for picture in payload.pictures])
    return encode(replace(payload, pictures=bare(payload.pictures))), contents


def with_contents(payload: Payload, data: bytes) -> Payload:
    """A payload with the content of its images; raises `UndecodableError` that says what is wrong."""
    contents = _decode(_pictures_decoder, data)
    if len(contents) != len(payload.pictures):
        raise UndecodableError(f"{len(contents)} images where the payload names {len(payload.pictures)}")
    return replace(
        payload,
        pictures=[replace(one, content=content) for one, content in zip(payload.pictures, contents, strict=True)],
    )


def _decode(decoder: Any, data: bytes) -> Any:
    """Whatever a decoder raises, the bytes are at fault.

    Not only msgspec's own errors come: text that is no UTF-8 raises `UnicodeDecodeError`, deep nesting
    `RecursionError`, a timestamp that no calendar has `ValueError`.
    """
    try:
        return decoder.decode(data)
    except Exception as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from error
