"""MessagePack encoding of messages. One decoder for all; what cannot be decoded is the caller's dead letter."""

from __future__ import annotations

import msgspec

from shared.messages import AnyMessage, Message, Tick
from shared.payload import Payload

FIELD = b"m"  # the only field of a stream entry

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_payload_decoder = msgspec.msgpack.Decoder(Payload)


class UndecodableError(ValueError):
    """Bytes that are no message of this version."""


def encode(message: Message | Payload) -> bytes:
    """Encode a message or a payload as MessagePack."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """Decode one message; raises `UndecodableError` that says what is wrong."""
    try:
        message: AnyMessage = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UndecodableError(str(error)) from error
    return message


def decode_entry(fields: dict[bytes, bytes]) -> AnyMessage:
    """Decode a stream entry; an entry without the message field is undecodable too."""
    data = fields.get(FIELD)
    if data is None:
        raise UndecodableError("entry has no field 'm'")
    return decode(data)


def decode_payload(data: bytes) -> Payload:
    """Decode a payload key; raises `UndecodableError` that says what is wrong."""
    try:
        return _payload_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UndecodableError(str(error)) from error


TICK = encode(Tick())
