"""What the first device of a group says to the others: length-prefixed MessagePack frames over a socket pair.

Only steps and loads travel here, as integers; numbers go by `Group` (PagedAttention, SOSP'23, §4.6: the control message
carries token ids and block tables, and the all-reduces are all the synchronisation there is).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from gpu_node.engine.border.plan import StepPlan
from shared.config.engines.engine import ModelSpec

MAX_FRAME_BYTES = 256 << 20
"""A step of the largest budget with penalties for the longest prompts takes a quarter of it at most, and one with masks
of a vocabulary of 256k for all draws that there may be (`MAX_STEP_DRAWS`) another half."""

_LENGTH = struct.Struct(">I")


class LoadShard(msgspec.Struct, frozen=True, tag=True):
    """Load this device's part of a model. Answered by `ShardAnswer`."""

    spec: ModelSpec
    instead_of: str | None = None
    """A model whose part is taken off for it."""


class UnloadShard(msgspec.Struct, frozen=True, tag=True):
    """Take this device's part of a model off it. Not answered."""

    name: str


class ComputeStep(msgspec.Struct, frozen=True, tag=True):
    """Compute a step together with the others. Not answered: the all-reduces tell."""

    plan: StepPlan


class ShardAnswer(msgspec.Struct, frozen=True, tag=True):
    """A part of a model is loaded, or ``error`` says why not."""

    error: str = ""


ToRank = LoadShard | UnloadShard | ComputeStep

T = TypeVar("T")


class RankGoneError(ConnectionError):
    """The other end closed the socket."""


def send(sock: socket.socket, message: ToRank | ShardAnswer) -> None:
    """Send a frame whole; `RankGoneError`, or `TimeoutError` after the socket's timeout."""
    body = msgspec.msgpack.encode(message, enc_hook=_listed)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"{type(message).__name__} takes {len(body)} bytes; a frame holds {MAX_FRAME_BYTES}")
    try:
        sock.sendall(_LENGTH.pack(len(body)) + body)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise RankGoneError("the other end is gone") from error


def receive(sock: socket.socket, kind: type[T]) -> T:
    """The next frame; `RankGoneError` at the end of the stream, `TimeoutError` after the socket's timeout."""
    (num_bytes,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    if num_bytes > MAX_FRAME_BYTES:
        raise ValueError(f"a frame claims {num_bytes} bytes; the limit is {MAX_FRAME_BYTES}")
    return msgspec.msgpack.decode(_read(sock, num_bytes), type=kind)


def _read(sock: socket.socket, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        try:
            data = sock.recv(num_bytes - len(parts))
        except ConnectionResetError as error:
            raise RankGoneError("the other end is gone") from error
        if not data:
            raise RankGoneError("the other end closed the stream")
        parts += data
    return bytes(parts)


def _listed(value: object) -> object:
    """Views of token ids travel as lists."""
    if isinstance(value, Sequence):
        return list(value)
    raise NotImplementedError(f"{type(value).__name__} does not travel")
