"""One block as it lies in its slot: a header that names it, and its keys and values behind that.

A read believes nothing: header and content have checksums, and the header names the prefix by its digest, by that of
its parent and by the tokens of the block. So what a kill tore, a disk changed or another model wrote is a miss.

No attacker writes there, so the content's checksum is a CRC, as those of file systems are: a digest takes ten times as
long, of the processors that compute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from gpu_node.engine.memory.prefix import Prefix
from gpu_node.engine.tiers.disk import PAGE_BYTES
from shared.messages.prefixes.prefixes import DIGEST_BYTES

HEADER_BYTES = PAGE_BYTES
"""A slot begins at a multiple of it, and so does its content."""
_MAGIC = b"treadlKV"
_VERSION = 3
_DIGEST_BYTES = 16
"""Of the header's own checksum."""
_FIELDS = struct.Struct(f"<8sIIQQ{DIGEST_BYTES}s{DIGEST_BYTES}sI")


class DamagedError(ValueError):
    """A slot does not hold the block that it should."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a slot says of the block in it."""

    order: int
    """Blocks that were written later have a higher one."""
    digest: bytes
    parent: bytes
    token_ids: tuple[int, ...]
    content_bytes: int
    checksum: int
    """Of the content: CRC-32."""


def salted(digest: bytes, salt: bytes) -> bytes:
    """Name of a block of a model whose `LoadedModel.salt` this is; what is salted twice is what it was."""
    return (int.from_bytes(digest) ^ int.from_bytes(salt)).to_bytes(DIGEST_BYTES)


def stored(prefix: Prefix, salt: bytes) -> Prefix:
    """A prefix as the store names it: its own digest and that of its parent are salted."""
    assert prefix.parent is not None
    return Prefix(Prefix(None, (), salted(prefix.parent.digest, salt)), prefix.token_ids, salted(prefix.digest, salt))


def slot_bytes(block_bytes: int) -> int:
    """That a block of so many bytes takes."""
    return HEADER_BYTES + -(-block_bytes // HEADER_BYTES) * HEADER_BYTES


def checksum(pieces: Sequence[memoryview]) -> int:
    """Of content in pieces."""
    value = 0
    for piece in pieces:
        value = crc32(piece, value)
    return value


def header_of(prefix: Prefix, order: int, content: Sequence[memoryview]) -> Header:
    """The header of a block that holds ``content``."""
    assert prefix.parent is not None
    num_bytes = sum(piece.nbytes for piece in content)
    return Header(order, prefix.digest, prefix.parent.digest, prefix.token_ids, num_bytes, checksum(content))


def encode(header: Header) -> bytes:
    """`HEADER_BYTES` bytes."""
    num_tokens = len(header.token_ids)
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        num_tokens,
        header.content_bytes,
        header.order,
        header.digest,
        header.parent,
        header.checksum,
    )
    body = (fields + struct.pack(f"<{num_tokens}I", *header.token_ids)).ljust(HEADER_BYTES - _DIGEST_BYTES, b"\0")
    return body + _digest(body)


def decode(data: bytes) -> Header:
    """Of the first bytes of a slot; `DamagedError` if they are no header."""
    if len(data) != HEADER_BYTES or not data.startswith(_MAGIC):
        raise DamagedError("no block is there")
    body = data[:-_DIGEST_BYTES]
    if _digest(body) != data[-_DIGEST_BYTES:]:
        raise DamagedError("the header is damaged")
    _, version, num_tokens, content_bytes, order, digest, parent, content_checksum = _FIELDS.unpack_from(body)
    if version != _VERSION:
        raise DamagedError(f"the header has version {version}; this one is {_VERSION}")
    token_ids = struct.unpack_from(f"<{num_tokens}I", body, _FIELDS.size)
    return Header(order, digest, parent, token_ids, content_bytes, content_checksum)


def check(header: Header, prefix: Prefix, content: Sequence[memoryview]) -> None:
    """`DamagedError` unless the header is that of ``prefix``, and what was read with it its content."""
    assert prefix.parent is not None
    if (header.digest, header.parent, header.token_ids) != (prefix.digest, prefix.parent.digest, prefix.token_ids):
        raise DamagedError("another block is there")
    if header.content_bytes != sum(piece.nbytes for piece in content) or header.checksum != checksum(content):
        raise DamagedError("the content is damaged")


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
