"""How much a JSON body would make of itself, counted before anything is made of it.

Four megabytes of JSON become one string or a million objects, and a decoder that makes a million objects holds the
interpreter for as long as it takes. Counting needs no decoder: without its strings, a body is brackets and commas. Each
step below is one pass over bytes, so that other threads get their turn between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway import errors

# More than the largest request that is taken: 4,096 messages with several parts and all fields, 64 prompts.
MAX_STRINGS = 1 << 17
MAX_OBJECTS = 1 << 15
MAX_ARRAYS = 1 << 13
MAX_ITEMS = 1 << 18  # of all lists and objects together; token ids are the only legal way to that many

_BACKSLASH, _QUOTE = b"\\\\", b'\\"'


@dataclass(frozen=True)
class Shape:
    """What a body is made of; of one that is no JSON, at least as much as there is before its fault."""

    num_strings: int
    num_objects: int
    num_arrays: int
    num_items: int
    """Commas outside of strings: items of lists and fields of objects, but for the first of each."""


def shape_of(data: bytes) -> Shape | None:
    """Count; None where there are so many strings that counting them would be work as well."""
    # Quotes behind a backslash are part of a string, unless the backslash is: at most half of the strings are missed.
    if data.count(b'"') - data.count(_QUOTE) > 4 * MAX_STRINGS:
        return None
    pieces = data.replace(_BACKSLASH, b"").replace(_QUOTE, b"").split(b'"')
    outside = b"".join(pieces[::2])
    return Shape(len(pieces) // 2, outside.count(b"{"), outside.count(b"["), outside.count(b","))


def check_shape(data: bytes) -> None:
    """`ApiError` 400 for a body that consists of more than any request."""
    shape = shape_of(data)
    if shape is None:
        raise _too_many(f"more than {2 * MAX_STRINGS}", "strings", MAX_STRINGS)
    for number, limit, what in (
        (shape.num_strings, MAX_STRINGS, "strings"),
        (shape.num_objects, MAX_OBJECTS, "objects"),
        (shape.num_arrays, MAX_ARRAYS, "lists"),
        (shape.num_items, MAX_ITEMS, "items in lists and objects"),
    ):
        if number > limit:
            raise _too_many(str(number), what, limit)


def _too_many(found: str, what: str, limit: int) -> errors.ApiError:
    return errors.invalid(f"the body has {found} {what}; at most {limit} are taken", None, code="body_too_complex")
