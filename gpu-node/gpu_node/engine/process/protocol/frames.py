"""What all messages between node agent and engine process are made of."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of everything that travels in a frame."""


class ImageFile(msgspec.Struct, frozen=True):
    """A serialised image in memory that the other process can map: images pass no socket between agent and engine.

    The one that made it keeps it open until it hears that the other has opened it, or needs it no more.
    """

    path: str
    """``/proc/PID/fd/NUMBER`` of the process that made it; ``""`` for none: the image was lost."""
    num_bytes: int


NO_IMAGE = ImageFile("", 0)
