"""One input from others: bytes flipped, cut, spliced, lengths inflated, text made invalid, nesting made deep.

All chance comes from the generator that is passed in, so that a seed says which inputs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

MAX_BYTES = 1 << 16
"""Inputs stay below: what is wrong with a decoder shows in small ones, and small ones are quick."""
STACKED = (1, 1, 1, 2, 3)
"""Mutations of one input: mostly one, since more of them leave little that decodes."""

Mutation = Callable[[bytearray, Sequence[bytes], Random], bytearray]

_LENGTHS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40]
_LENGTHS += [(1 << 61) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
_BAD_TEXT = (
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"\x00",
    b"\xef\xbf\xbf",
    b"\\ud800",
)
_NESTS = (b"[", b"\x91", b"\x81", b'{"a":', b"\xdc\x00\x01", b'[{"":', b"{{", b"{%if 1%}", b"(")


def mutated_bytes(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """A neighbour of ``data``."""
    changed = bytearray(data)
    for _ in range(rng.choice(STACKED)):
        changed = rng.choice(MUTATIONS)(changed, corpus, rng)
    return bytes(changed[:MAX_BYTES])


def _place(data: bytearray, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def flip_bit(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """One bit."""
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def change_byte(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """One byte to any other."""
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data


def truncate(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """The end is gone."""
    return data[: _place(data, rng)]


def remove(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """Some bytes are gone."""
    start = _place(data, rng)
    del data[start : start + rng.randint(1, 16)]
    return data


def double(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """Some bytes are there twice, one behind the other."""
    start = _place(data, rng)
    end = start + rng.randint(1, 64)
    return data[:end] + data[start:end] + data[end:]


def splice(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """The beginning of one and the end of another."""
    other = rng.choice(corpus)
    return data[: _place(data, rng)] + other[rng.randrange(len(other) + 1) :]


def insert_length(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """A number at a border of what fits is written over some bytes, in either order."""
    num_bytes = rng.choice((1, 2, 4, 8))
    number = rng.choice(_LENGTHS) & ((1 << 8 * num_bytes) - 1)
    start = _place(data, rng)
    data[start : start + num_bytes] = number.to_bytes(num_bytes, rng.choice(_ORDERS))
    return data


def nudge_number(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """A number in place becomes a little more, a little less, or its negative."""
    num_bytes = rng.choice((1, 2, 4, 8))
    if len(data) < num_bytes:
        return data
    start, order = rng.randrange(len(data) - num_bytes + 1), rng.choice(_ORDERS)
    number = int.from_bytes(data[start : start + num_bytes], order)
    number = -number if rng.random() < 0.2 else number + rng.randint(-8, 8)
    data[start : start + num_bytes] = (number & ((1 << 8 * num_bytes) - 1)).to_bytes(num_bytes, order)
    return data


def spoil_text(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """Bytes that are no UTF-8, or just no character that anybody expects; in place, so that lengths still hold."""
    bad, start = rng.choice(_BAD_TEXT), _place(data, rng)
    data[start : start + len(bad)] = bad
    return data


def nest(data: bytearray, corpus: Sequence[bytes], rng: Random) -> bytearray:
    """Deep nesting in the middle."""
    start = _place(data, rng)
    return data[:start] + rng.choice(_NESTS) * rng.choice((3, 100, 1200, 8000)) + data[start:]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit,
    flip_bit,
    change_byte,
    change_byte,
    truncate,
    remove,
    double,
    splice,
    insert_length,
    nudge_number,
    spoil_text,
)
"""`nest` is apart: it makes inputs long, and one in a hundred is enough."""
