"""Images that this node has handed over and still holds: for a node that comes with the ticket, and for a limited time.

Their memory is the engine's, which counts it; here it is mapped once more, so that no node waits for a step that runs.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from hmac import compare_digest

import structlog

from gpu_node.agent.decisions.actions import ImageBegun, ImageHeld
from gpu_node.agent.decisions.evictions import KV_IMAGE_TTL_S
from gpu_node.agent.images.piece_stream import PATH
from gpu_node.agent.telemetry.image_metrics import count_failure
from gpu_node.engine.process.protocol.growth_protocol import ImageGrown
from gpu_node.engine.process.protocol.protocol import Image, ImageFile
from shared.messages.requests.requests import Attempt, ImageTicket

TOKEN_BYTES = 16

log = structlog.get_logger()


@dataclass(slots=True)
class GivenImage:
    """One that waits."""

    name: str
    attempt: Attempt
    number: int
    token: str
    content: memoryview
    """All of it, or all that is expected where it grows."""
    num_readable: int
    """Bytes of it that are there."""
    is_whole: bool = False
    is_fetched: bool = False
    """A node is fetching it."""
    told_bytes: int = 0
    """Its size as told to nodes that read it while it grows."""
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    """There is more of it, or it is gone."""

    @property
    def end_ahead(self) -> int:
        """Up to where it may be read while it grows."""
        return min(self.num_readable, self.told_bytes)

    def tell(self) -> None:
        """Readers that wait for more look again."""
        self.grown.set()
        self.grown = asyncio.Event()


class ImageRefusedError(Exception):
    """An image is not given; ``status`` is HTTP's."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class GivenImages:
    """Of one epoch. An image goes when it has been fetched, when it is dropped, and when its time is over."""

    def __init__(self, node: str, epoch: str, base_url: str, ttl_s: float = KV_IMAGE_TTL_S) -> None:
        """``base_url``: how other nodes reach this one."""
        self._node = node
        self._epoch = epoch
        self._base_url = base_url
        self._ttl_s = ttl_s
        self._images: dict[str, GivenImage] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._released: list[int] = []
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._images)

    @property
    def num_bytes(self) -> int:
        """Of all."""
        return sum(len(image.content) for image in self._images.values())

    def hold(self, event: Image, ttl_s: float | None = None) -> ImageHeld:
        """Keep what the engine has written until it is fetched; for so long, or for as long as requests' are kept."""
        attempt = Attempt(event.request_id, event.attempt)
        if not event.file.num_bytes:
            self.end(event.number)
            return ImageHeld(attempt, None)
        image = self._kept(attempt, event.number, event.file)
        if image is None:
            return ImageHeld(attempt, None)
        image.num_readable, image.is_whole = event.file.num_bytes, True
        self._stays(image, self._ttl_s if ttl_s is None else ttl_s)
        return ImageHeld(attempt, self._ticket(image))

    def grow(self, event: ImageGrown) -> ImageBegun | None:
        """There is more of an image that the engine is still at; the first time it is told, with its ticket."""
        image = self._kept(Attempt(event.request_id, event.attempt), event.number, event.file)
        if image is None:
            return None
        is_new = not image.num_readable
        image.num_readable, image.told_bytes = event.num_bytes, event.file.num_bytes
        self._stays(image, self._ttl_s)
        return ImageBegun(image.attempt, self._ticket(image)) if is_new else None

    def end(self, number: int) -> None:
        """Nothing more comes of one that grew; unknown ones are ignored."""
        image = self._images.get(self._name(number))
        if image is not None:
            self._remove(image)

    def _name(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _kept(self, attempt: Attempt, number: int, file: ImageFile) -> GivenImage | None:
        """The image of this number, with what is in the file; None where that is gone."""
        name = self._name(number)
        image = self._images.get(name)
        try:
            if image is None:
                token, content = secrets.token_hex(TOKEN_BYTES), _mapped(file.path, file.num_bytes)
                image = self._images[name] = GivenImage(name, attempt, number, token, content, 0)
            elif len(image.content) != file.num_bytes:
                image.content = _mapped(file.path, file.num_bytes)
        except (OSError, ValueError) as error:  # the engine is gone, and with it the epoch
            log.warning("image not held", request_id=attempt.request_id, error=str(error))
            self.end(number)
            self.release(number)
            return None
        return image

    def _stays(self, image: GivenImage, ttl_s: float) -> None:
        """For so long from now on."""
        if image.name in self._timers:
            self._timers[image.name].cancel()
        self._timers[image.name] = asyncio.get_running_loop().call_later(ttl_s, self._expire, image)
        image.tell()

    def _ticket(self, image: GivenImage) -> ImageTicket:
        return ImageTicket(self._node, f"{self._base_url}{PATH}/{image.name}", image.token, len(image.content))

    def claim(self, name: str, token: str, first: int = 0) -> GivenImage:
        """An image, for a node that has its token and begins to fetch it, from its byte ``first`` on.

        Raises `ImageRefusedError`.
        """
        image = self.read(name, token)
        if first > len(image.content):
            raise ImageRefusedError(416, f"it has {len(image.content)} bytes")
        if image.is_fetched or not image.is_whole:
            raise ImageRefusedError(409, "it is being fetched" if image.is_fetched else "it is not whole")
        image.is_fetched = True
        return image

    def read(self, name: str, token: str) -> GivenImage:
        """An image, for a node that has its token and reads what there is of it. Raises `ImageRefusedError`."""
        image = self._images.get(name)
        if image is None:
            raise ImageRefusedError(404, "there is no such image")
        if not compare_digest(image.token.encode(), token.encode(errors="surrogateescape")):
            raise ImageRefusedError(403, "it is not this image's token")
        return image

    def unclaim(self, image: GivenImage, *, is_whole: bool) -> None:
        """It has been fetched, or only a part of it: then it waits on."""
        image.is_fetched = False
        if is_whole:
            self._remove(image)

    def drop(self, attempts: Iterable[Attempt]) -> None:
        """No node will come for these."""
        gone = set(attempts)
        for image in [one for one in self._images.values() if one.attempt in gone]:
            self._remove(image)

    def clear(self) -> None:
        """The epoch is over. A node that is being served is served to the end."""
        for image in list(self._images.values()):
            self._remove(image)

    async def released(self) -> list[int]:
        """Numbers of those that have gone since it was asked last; waits for the next."""
        while not self._released:
            await self._next()
        numbers, self._released = self._released, []
        return numbers

    async def emptied(self) -> None:
        """Until none is left."""
        while self._images:
            await self._next()

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _expire(self, image: GivenImage) -> None:
        log.warning("image not fetched in time", request_id=image.attempt.request_id)
        count_failure("expired")
        self._remove(image)

    def _remove(self, image: GivenImage) -> None:
        if self._images.pop(image.name, None) is not None:
            timer = self._timers.pop(image.name, None)
            if timer is not None:
                timer.cancel()
            image.tell()
            self.release(image.number)

    def release(self, number: int) -> None:
        """One that is not held, or not any more: its memory may be free."""
        self._released.append(number)
        self._news.set()


def _mapped(path: str, num_bytes: int) -> memoryview:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, num_bytes, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)
