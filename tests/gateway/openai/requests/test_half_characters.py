"""Escapes of half a character in JSON that a model wrote."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai.requests.half_characters import without_halves
from gateway.openai.requests.tools import arguments_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        (r'{"a": "\ud800"}', r'{"a": "\ufffd"}'),
        (r'"\uD83D\uDE00 \uDE00\ud83d"', r'"\uD83D\uDE00 \ufffd\ufffd"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\\ud800 \\\ud800"', r'"\\ud800 \\\ufffd"'),  # behind an escaped backslash there is no escape
        (r'"\u00e9\n\"', r'"\u00e9\n\"'),
    ],
)
def test_a_half_that_stands_alone_is_none(text: str, found: str) -> None:
    assert without_halves(text) == found


@given(st.text(st.sampled_from(["\ud800", "\udbff", "\udc00", "\udfff", "\\", "u", "d", "8", '"', "é", "😀"])))
def test_strict_readers_take_what_is_left(text: str) -> None:
    found = without_halves(json.dumps({"a": text}))
    assert msgspec.json.decode(found) == {"a": _as_utf16(text)} == arguments_of(json.dumps({"a": text}))


def _as_utf16(text: str) -> str:
    """With U+FFFD for halves; two that stand together by chance are a character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
