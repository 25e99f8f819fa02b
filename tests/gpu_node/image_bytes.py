"""Images of requests as they lie in memory that was fetched."""

from __future__ import annotations

from gpu_node.engine.evictions.image_codec import image_pieces
from gpu_node.engine.requests.image import RequestImage


def encode_image(image: RequestImage) -> bytes:
    """The serialised form in one piece."""
    return b"".join(image_pieces(image))
