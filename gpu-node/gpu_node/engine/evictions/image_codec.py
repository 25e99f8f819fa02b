"""The serialised form of an image, in which it travels to another engine.

The content of the blocks as it is, a header (MessagePack), and the length of that: neither end copies the content, and
blocks of a prompt that are full can leave while later ones are computed.
"""

from __future__ import annotations

import msgspec

from gpu_node.engine.evictions.image_frame import framed, unframed
from gpu_node.engine.requests.image import ImageError, RequestImage, RequestState, SerialisedImage

IMAGE_VERSION = 3
"""Engines of another one give the request back."""


class _Header(msgspec.Struct, frozen=True):
    version: int
    state: RequestState


def image_pieces(image: RequestImage) -> tuple[memoryview, bytes]:
    """The content, and what comes behind it in the serialised form."""
    return framed(_Header(IMAGE_VERSION, image.state), image.content)


def decode_image(data: SerialisedImage) -> RequestImage:
    """The image of a serialised form, whose memory it keeps; `ImageError` where it is of another version, or torn."""
    header, content = unframed(data, _Header)
    if header.version != IMAGE_VERSION:
        raise ImageError(f"it is of version {header.version}; this engine has {IMAGE_VERSION}")
    state = header.state
    num_bytes = state.num_bytes if state.format.kv_layout else 0
    if not state.is_whole:
        raise ImageError(f"its {state.num_blocks} blocks are not those of its sequences")
    if len(content) != num_bytes:
        raise ImageError(f"its content has {len(content)} bytes instead of {num_bytes}")
    return RequestImage(state, content)
