"""The serialised form of an image, in which it travels to another engine."""

from __future__ import annotations

import msgspec

from gpu_node.engine.requests.image import ImageError, RequestImage

IMAGE_VERSION = 1
"""Engines of another one give the request back."""


class _Sealed(msgspec.Struct, frozen=True):
    version: int
    image: RequestImage


def encode_image(image: RequestImage) -> bytes:
    """The serialised form."""
    return msgspec.msgpack.encode(_Sealed(IMAGE_VERSION, image))


def decode_image(data: bytes) -> RequestImage:
    """The image of a serialised form; `ImageError` if it is none of this version, or not whole."""
    try:
        sealed = msgspec.msgpack.decode(data, type=_Sealed)
    except Exception as error:  # msgspec's own, and what bad UTF-8 and deep nesting raise
        raise ImageError(f"it does not decode: {error}") from error
    if sealed.version != IMAGE_VERSION:
        raise ImageError(f"it is of version {sealed.version}; this engine has {IMAGE_VERSION}")
    state, content = sealed.image.state, sealed.image.content
    num_bytes = state.num_bytes if state.format.kv_layout else 0
    if not state.is_whole:
        raise ImageError(f"its {state.num_blocks} blocks are not those of its sequences")
    if len(content) != num_bytes:
        raise ImageError(f"its content has {len(content)} bytes instead of {num_bytes}")
    return sealed.image
