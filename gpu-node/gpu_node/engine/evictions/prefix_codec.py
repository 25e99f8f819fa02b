"""The serialised form of a prompt's beginning, in which its KV travels to another engine that goes on from it.

The content of the blocks as it is, first to last, a header (MessagePack), and the length of that: as
`gpu_node.engine.evictions.image_codec` writes requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gpu_node.engine.evictions.image_frame import framed, unframed
from gpu_node.engine.requests.image import BlockFormat, ImageError, SerialisedImage

PREFIX_VERSION = 2
"""Engines of another one compute it themselves."""


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
    """Of the prefix that ends with the last one: which tokens, and of which owner, they are."""
    content: memoryview


def prefix_pieces(image: PrefixImage) -> tuple[memoryview, bytes]:
    """The content, and what comes behind it in the serialised form."""
    head = _Header(PREFIX_VERSION, image.format, image.first, image.num_blocks, image.digest)
    return framed(head, image.content)


def decode_prefix(data: SerialisedImage) -> PrefixImage:
    """The prefix of a serialised form, whose memory it keeps; `ImageError` where it is of another version, or torn."""
    header, content = unframed(data, _Header)
    if header.version != PREFIX_VERSION:
        raise ImageError(f"it is of version {header.version}; this engine has {PREFIX_VERSION}")
    if header.first < 0 or header.num_blocks < 1:
        raise ImageError(f"it says that it has {header.num_blocks} blocks behind {header.first}")
    if len(content) != header.format.content_bytes(header.num_blocks):
        raise ImageError(f"its content has {len(content)} bytes, for {header.num_blocks} blocks")
    return PrefixImage(header.format, header.first, header.num_blocks, header.digest, content)
