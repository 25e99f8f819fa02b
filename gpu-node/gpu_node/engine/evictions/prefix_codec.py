"""The serialised form of a prompt's beginning, in which its KV travels to another engine that goes on from it.

The length of a header, the header (MessagePack), and the content of the blocks as it is, first to last: as
`gpu_node.engine.evictions.image_codec` writes requests.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from gpu_node.engine.requests.image import BlockFormat, ImageError, SerialisedImage

PREFIX_VERSION = 1
"""Engines of another one compute it themselves."""

_LENGTH = struct.Struct(">I")


class _Header(msgspec.Struct, frozen=True):
    version: int
    format: BlockFormat
    first: int
    num_blocks: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class PrefixImage:
    """Blocks of one prompt that follow each other."""

    format: BlockFormat
    first: int
    """Blocks before these, which are not in it."""
    num_blocks: int
    digest: bytes
    """Of the prefix that ends with the last one: whose tokens, and whose adapter's, they are."""
    content: memoryview


def prefix_pieces(image: PrefixImage) -> tuple[bytes, memoryview]:
    """The serialised form, but for its content, and the content."""
    head = _Header(PREFIX_VERSION, image.format, image.first, image.num_blocks, image.digest)
    header = msgspec.msgpack.encode(head)
    return _LENGTH.pack(len(header)) + header, image.content


def decode_prefix(data: SerialisedImage) -> PrefixImage:
    """The prefix of a serialised form, whose memory it keeps; `ImageError` where it is of another version, or torn."""
    view = memoryview(data)
    try:
        (num_header,) = _LENGTH.unpack_from(view)
        begin = _LENGTH.size + num_header
        if begin > len(view):
            raise ImageError(f"it does not decode: it ends inside its header of {num_header} bytes")
        header = msgspec.msgpack.decode(view[_LENGTH.size : begin], type=_Header)
    except ImageError:
        raise
    except Exception as error:  # struct's and msgspec's own, and what bad UTF-8 and deep nesting raise
        raise ImageError(f"it does not decode: {error}") from error
    if header.version != PREFIX_VERSION:
        raise ImageError(f"it is of version {header.version}; this engine has {PREFIX_VERSION}")
    if header.first < 0 or header.num_blocks < 1:
        raise ImageError(f"it says that it has {header.num_blocks} blocks behind {header.first}")
    content = view[begin:]
    if len(content) != header.num_blocks * header.format.block_bytes:
        raise ImageError(f"its content has {len(content)} bytes, for {header.num_blocks} blocks")
    return PrefixImage(header.format, header.first, header.num_blocks, header.digest, content)
