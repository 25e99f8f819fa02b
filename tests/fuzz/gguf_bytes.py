"""A GGUF file as a tree and back, without any check: what is written may be as wrong as a test wants it."""

from __future__ import annotations

import struct
from typing import Any

ARRAY, STRING = 9, 8
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MASKS = {"B": 0xFF, "H": 0xFFFF, "I": 0xFFFFFFFF, "Q": 0xFFFFFFFFFFFFFFFF}

Tree = dict[str, Any]
"""``version``, ``keys``: [name, type, value or [type of elements, values]], ``tensors``: [name, sizes, type, offset],
``data``: bytes behind the header, from the first tensor."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 8

    def number(self, format_: str) -> Any:
        (found,) = struct.unpack_from(f"<{format_}", self._data, self.offset)
        self.offset += struct.calcsize(f"<{format_}")
        return found

    def text(self) -> str:
        length = self.number("Q")
        self.offset += length
        return self._data[self.offset - length : self.offset].decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return [inner, [self.value(inner) for _ in range(count)]]
        return self.number(_FORMATS[kind])


def parsed(data: bytes) -> Tree:
    """The tree of a file that is in order; `struct.error`, `KeyError` or `ValueError` for another."""
    reader = _Reader(data)
    num_tensors, num_keys = reader.number("Q"), reader.number("Q")
    if num_tensors + num_keys > len(data):
        raise ValueError("more entries than bytes")
    keys = []
    for _ in range(num_keys):
        name, kind = reader.text(), reader.number("I")
        keys.append([name, kind, reader.value(kind)])
    tensors = []
    for _ in range(num_tensors):
        name = reader.text()
        sizes = [reader.number("Q") for _ in range(min(reader.number("I"), 8))]
        tensors.append([name, sizes, reader.number("I"), reader.number("Q")])
    start = -(-reader.offset // 32) * 32
    return {"version": struct.unpack_from("<I", data, 4)[0], "keys": keys, "tensors": tensors, "data": data[start:]}


def written(tree: Tree) -> bytes:
    """The file of a tree; numbers are cut to their width."""
    keys, tensors = tree["keys"], tree["tensors"]
    parts = [b"GGUF", _number("I", tree["version"]), _number("Q", len(tensors)), _number("Q", len(keys))]
    for name, kind, value in keys:
        parts += [_text(name), _number("I", kind), _value(kind, value)]
    for name, sizes, kind, offset in tensors:
        parts += [_text(name), _number("I", len(sizes)), *(_number("Q", size) for size in sizes)]
        parts += [_number("I", kind), _number("Q", offset)]
    header = b"".join(parts)
    return b"".join([header, bytes(-len(header) % 32), tree["data"]])


def _number(format_: str, value: Any) -> bytes:
    if format_ == "?":
        return b"\x01" if value else b"\x00"
    if format_ in "fd":
        return struct.pack(f"<{format_}", value)
    mask = _MASKS[format_.upper()]
    return struct.pack(f"<{format_.upper()}", int(value) & mask)


def _text(value: str) -> bytes:
    data = value.encode()
    return _number("Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind == ARRAY:
        inner, values = value
        return _number("I", inner) + _number("Q", len(values)) + b"".join(_value(inner, one) for one in values)
    return _number(_FORMATS.get(kind, "I"), value)
