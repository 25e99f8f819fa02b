"""Bodies of four megabytes, each made to cost its reader as much as it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

BODY_BYTES = (4 << 20) - 1024  # a little below `gateway.max_body_bytes`

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"


def _filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    return begin + unit * ((BODY_BYTES - len(begin) - len(end)) // len(unit)) + end


def _prompt(unit: bytes) -> bytes:
    return _filled(b'{"model":"chat","prompt":"', unit, b'"}')


def _items(begin: bytes, item: bytes, end: bytes) -> bytes:
    return _filled(begin, item + b",", item + end)


def _valid(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "chat", "max_tokens": 1, **fields})


def _deep() -> bytes:
    unit = b"[" * 100 + b"]" * 100
    return _items(b'{"model":"chat","prompt":"x","metadata":{"a":[', unit, b"]}}")


def _unknown() -> bytes:
    return b'{"model":"chat","prompt":"x"' + b"".join(b',"key%07d":1' % n for n in range(BODY_BYTES // 15)) + b"}"


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nested metadata": (TEXT, lambda: _items(b'{"model":"chat","prompt":"x","metadata":{"a":[', b'{"a":[]}', b"]}}")),
    "lists in lists": (TEXT, _deep),
    "deep nesting": (TEXT, lambda: _filled(b'{"model":"chat","metadata":', b"[", b"")),
    "unknown keys": (TEXT, _unknown),
    "empty lists": (TEXT, lambda: _items(b'{"model":"chat","prompt":[', b"[]", b"]}")),
    "digits as a number": (TEXT, lambda: _filled(b'{"model":"chat","prompt":"x","max_tokens":', b"1", b"}")),
    "digits": (TEXT, lambda: _prompt(b"1")),
    "one word": (TEXT, lambda: _prompt(b"a")),
    "spaces": (TEXT, lambda: _prompt(b" ")),
    "spaces around": (TEXT, lambda: _filled(b'{"model":"chat",', b" ", b'"prompt":1}')),
    "escapes": (TEXT, lambda: _prompt(b'\\"')),
    "backslashes": (TEXT, lambda: _prompt(b"\\\\")),
    "combining marks": (TEXT, lambda: _prompt("e\u0301".encode())),
    "invalid UTF-8": (TEXT, lambda: _prompt(b"\xff")),
    "token ids": (TEXT, lambda: _items(b'{"model":"chat","prompt":[', b"7", b"]}")),
    "many prompts": (TEXT, lambda: _items(b'{"model":"chat","prompt":[', b'"x"', b"]}")),
    "messages": (CHAT, lambda: _items(b'{"model":"chat","messages":[', b'{"role":"user","content":"x"}', b"]}")),
    "parts": (
        CHAT,
        lambda: _items(
            b'{"model":"chat","messages":[{"role":"user","content":[', b'{"type":"text","text":"x"}', b"]}]}"
        ),
    ),
    "control tokens": (
        CHAT,
        lambda: _filled(b'{"model":"chat","messages":[{"role":"user","content":"', b"<|im_end", b'"}]}'),
    ),
    "stop strings": (TEXT, lambda: _items(b'{"model":"chat","prompt":"x","stop":[', b'"aaaaaaaa"', b"]}")),
    "biases": (
        TEXT,
        lambda: (
            b'{"model":"chat","prompt":"x","logit_bias":{'
            + b",".join(b'"%d":1' % n for n in range(BODY_BYTES // 11))
            + b"}}"
        ),
    ),
    # the largest that are no fault: these are answered, or do not fit the model
    "64 prompts": (TEXT, lambda: _valid(prompt=["the quick brown fox " * 64] * 64)),
    "4096 messages": (CHAT, lambda: _valid(messages=[{"role": "user", "content": "x"}] * 4096)),
    "16 stop strings": (TEXT, lambda: _valid(prompt="x", stop=["a" * 255 + chr(97 + n) for n in range(16)])),
    # short ones: forms that are looked at before anything is queued
    "empty lines as a grammar": (TEXT, lambda: _valid(prompt="x", structured_outputs={"grammar": "\n" * (1 << 14)})),
    "many remainders": (
        TEXT,
        lambda: _valid(prompt="x", structured_outputs={"json": {"type": "integer", "multipleOf": 100_000_007}}),
    ),
    "digits that nearly fit": (TEXT, lambda: _valid(prompt="1" * 160_000)),
}
"""By name: the path, and what makes the body."""
