"""Messages of agent and engine as bytes: length-prefixed MessagePack frames over a Unix stream socket.

A frame is a 4-byte big-endian length and that many bytes of MessagePack. Both ends run the same version (the agent
starts the engine), so anything that does not decode is a defect or a torn stream: fatal, never skipped.

There is no I/O here: the engine uses `frame` and `FrameDecoder` over a plain socket, the agent over asyncio streams.
"""

from __future__ import annotations

import struct
from typing import Generic, TypeVar

import msgspec

from gpu_node.engine.process.protocol.protocol import Command, EngineEvent, EngineRefused

MAX_FRAME_BYTES = 16 << 20
"""A prompt of a million tokens takes 5 MB; a longer frame is a torn stream, not a message."""

_LENGTH = struct.Struct(">I")

T = TypeVar("T")


class ProtocolError(ValueError):
    """Bytes on the engine's socket that are no frame of this version; the connection cannot go on."""


_encoder = msgspec.msgpack.Encoder()


def frame(message: Command | EngineEvent | EngineRefused) -> bytes:
    """Encode one message with its length in front; `ProtocolError` when it is larger than a frame may be."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"{type(message).__name__} takes {len(body)} bytes; a frame holds {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder(Generic[T]):
    """Cuts a byte stream into messages; made by `command_decoder` and `event_decoder`."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    @property
    def num_buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet; not 0 at the end of the stream means it was torn."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[T]:
        """Messages completed by ``data``; `ProtocolError` when the stream holds anything else."""
        self._buffer += data
        messages: list[T] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (num_bytes,) = _LENGTH.unpack_from(self._buffer, start)
            if num_bytes > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame claims {num_bytes} bytes; the limit is {MAX_FRAME_BYTES}")
            body_start = start + _LENGTH.size
            if len(self._buffer) < body_start + num_bytes:
                break
            messages.append(self._decode(self._buffer[body_start : body_start + num_bytes]))
            start = body_start + num_bytes
        del self._buffer[:start]
        return messages

    def _decode(self, body: bytearray) -> T:
        try:
            return self._decoder.decode(body)
        except Exception as error:  # msgspec's own, and what bad UTF-8 and deep nesting raise
            raise ProtocolError(f"a frame does not decode: {error}") from error


def command_decoder() -> FrameDecoder[Command]:
    """The engine's end."""
    return FrameDecoder(msgspec.msgpack.Decoder(Command))


def event_decoder() -> FrameDecoder[EngineEvent | EngineRefused]:
    """The agent's end."""
    return FrameDecoder(msgspec.msgpack.Decoder(EngineEvent | EngineRefused))
