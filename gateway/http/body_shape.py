"""How much a JSON body would make of itself, counted before anything is made of it.

Four megabytes of JSON become one string or a million objects, and a decoder that makes a million objects holds the
interpreter for as long as it takes. Counting needs no decoder: without its strings, a body is brackets and commas. It
is done in steps, so that the event loop can turn between them; a thread would be worse, since the loop would have to
wait for it at every turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.openai.errors import errors

# More than the largest request that is taken: 4,096 messages with several parts and all fields, 64 prompts.
MAX_STRINGS = 1 << 17
MAX_OBJECTS = 1 << 15
MAX_ARRAYS = 1 << 13
MAX_ITEMS = 1 << 18  # of all lists and objects together; token ids are the only legal way to that many

STEP_BYTES = 32 << 10  # a millisecond or two, whatever is in them


@dataclass
class Shape:
    """What a body is made of, as far as it was looked at; of one that is no JSON, all that is before its fault."""

    num_quotes: int = 0
    num_objects: int = 0
    num_arrays: int = 0
    num_items: int = 0
    """Commas outside of strings: items of lists and fields of objects, but for the first of each."""

    @property
    def num_strings(self) -> int:
        """Those that have begun."""
        return (self.num_quotes + 1) // 2

    def add(self, data: bytes) -> None:
        """Count the next piece, which does not end within an escape."""
        pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self.num_quotes % 2 :: 2])
        self.num_quotes += len(pieces) - 1
        self.num_objects += outside.count(b"{")
        self.num_arrays += outside.count(b"[")
        self.num_items += outside.count(b",")

    def check(self) -> None:
        """`ApiError` 400 for more than any request consists of."""
        for number, limit, what in (
            (self.num_strings, MAX_STRINGS, "strings"),
            (self.num_objects, MAX_OBJECTS, "objects"),
            (self.num_arrays, MAX_ARRAYS, "lists"),
            (self.num_items, MAX_ITEMS, "items in lists and objects"),
        ):
            if number > limit:
                message = f"the body has more than {limit} {what}, which are as many as are taken"
                raise errors.invalid(message, None, code="body_too_complex")


def check_steps(data: bytes) -> Iterator[Shape]:
    """Count and check step by step; `ApiError` 400 as soon as it is too much."""
    shape = Shape()
    begin = 0
    while begin < len(data):
        end = begin + STEP_BYTES
        piece = data[begin:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # the last one escapes what comes next
            piece = data[begin : end + 1]
        begin += len(piece)
        shape.add(piece)
        shape.check()
        yield shape
