"""What node agent and engine process say of images that are read while their prompts are computed."""

from __future__ import annotations

from gpu_node.engine.process.protocol.frames import Frame, ImageFile


class OpenImages(Frame, frozen=True):
    """The images of these requests may be read while their prompts are computed (`ImageGrown`, `ImageEnded`).

    Unknown ids are ignored, and so are those that are beyond a bound: they leave in one piece.
    """

    request_ids: list[str]


class ImageGrown(Frame, frozen=True):
    """More of an image can be read, whose request goes on here. Its memory counts as that of one that is whole."""

    request_id: str
    attempt: int
    number: int
    file: ImageFile
    """As large as all of it is expected to become."""
    num_bytes: int
    """That can be read of it: they do not change any more."""


class ImageEnded(Frame, frozen=True):
    """An image that has grown becomes none that is whole, and its memory is free: its request has ended, or stays."""

    number: int


GrowthEvent = ImageGrown | ImageEnded
