"""MessagePack as others read and write it: the `msgpack` library, which shares no code with ours."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]


def pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value)
    return data


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data)
