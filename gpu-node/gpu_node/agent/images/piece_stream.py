"""How an image crosses the network: an HTTP body of pieces, each behind the checksum of what it holds.

A CRC, as file systems have it: it is there against faults, not against attackers, who would need the image's token.
Both ends hold one piece at a time beside the image itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

PATH = "/images/v1"
"""With the version of this form: another one is not found, and its request computed again."""

AHEAD = "ahead"
"""Behind an image's address: what can be read while it grows. From a byte on, as of the image itself (``?from=``)."""

PIECE_BYTES = 4 << 20
"""So large that changes of threads, of which each costs one, are few."""

HEAD = struct.Struct(">I")
"""In front of a piece."""


def parts(num_bytes: int, first: int = 0) -> Iterator[slice]:
    """Where the pieces of an image of so many bytes lie in it, from its byte ``first`` on."""
    return (slice(begin, min(begin + PIECE_BYTES, num_bytes)) for begin in range(first, num_bytes, PIECE_BYTES))


def num_body_bytes(num_bytes: int) -> int:
    """Of the body of an image of so many bytes."""
    return num_bytes + HEAD.size * -(-num_bytes // PIECE_BYTES)


def num_content_bytes(num_bytes: int) -> int:
    """Of the image's bytes in a body of so many: the inverse."""
    return num_bytes - HEAD.size * -(-num_bytes // (PIECE_BYTES + HEAD.size))


def head_of(piece: memoryview) -> bytes:
    """What goes in front of a piece. Some milliseconds without the interpreter's lock."""
    return HEAD.pack(crc32(piece))
