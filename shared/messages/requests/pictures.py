"""Images of a prompt: what is known of each; their content travels apart from all messages (`shared.bus.streams`).

They are called pictures here: an image is what a request leaves behind when it gives way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

MAX_PICTURES = 16
"""Of a request."""

MAX_PICTURES_BYTES = 10 << 20
"""Of a request, all together, as files: they go from agent to engine in one frame, with a long prompt."""

MAX_PICTURE_PIXELS = 1 << 24
"""Of each: 4,096 by 4,096. A file of some kilobytes can claim any size."""

MAX_PICTURES_PIXELS = 1 << 25
"""Of a request, all together: so much is computed for it before it is queued."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a prompt, in which one token stands for it."""

    digest: str
    """SHA-256 of its file, in hexadecimal."""
    width: int
    height: int
    """In pixels, as it is seen: turned as its file says."""
    num_tokens: int
    """That the model reads in the place of that token; never less than an engine finds."""
    content: bytes = field(default=b"", repr=False)
    """Its file (PNG, JPEG, WebP, GIF); empty where only messages are: a payload in Redis, a process's books."""

    def name_in(self, partition: str) -> str:
        """What engines know it by in a part of their caches (`Payload.partition`); in the common one, its digest."""
        return self.digest + partition


def bare(pictures: Iterable[Picture]) -> list[Picture]:
    """The same without their content."""
    return [replace(picture, content=b"") for picture in pictures]
