"""What an engine does about images that others read while they grow, and what its agent hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from gpu_node.engine.process.protocol.frames import ImageFile
from gpu_node.engine.process.protocol.growth_protocol import GrowthEvent, ImageEnded, ImageGrown
from gpu_node.engine.requests.image import Growth


class GrowthPort(Protocol):
    """As `gpu_node.engine.growing_images.GrowingImages`."""

    def open(self, request_ids: Iterable[str]) -> None:
        """Let the images of these grow."""
        ...

    def grow(self, make: Callable[[int, int], memoryview]) -> tuple[list[Growth], list[int]]:
        """What there is more of each, and numbers of those of which nothing more comes.

        ``make`` gives memory for an image of this number, of so many bytes; `OSError` where there is none.
        """
        ...


@runtime_checkable
class GrowsImages(Protocol):
    """An engine whose images may be read while their prompts are computed."""

    @property
    def growing(self) -> GrowthPort:
        """What it does that with."""
        ...


class GrowthFiles(Protocol):
    """Where they grow (`gpu_node.engine.process.commands.commands.ImagePort`)."""

    def make(self, number: int, num_bytes: int) -> memoryview:
        """Memory for one that others can read, as `GrowthPort.grow` wants it."""
        ...

    def growing_file(self, growth: Growth) -> ImageFile:
        """Where it is, and how large; `NO_IMAGE` where there is nothing to read."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """These are of no more use."""
        ...


class GrowthCommands:
    """An engine whose images do not grow opens none."""

    def __init__(self, engine: object, send: Callable[[GrowthEvent], None], files: GrowthFiles) -> None:
        self._port = engine.growing if isinstance(engine, GrowsImages) else None
        self._send = send
        self._files = files

    def open(self, request_ids: Iterable[str]) -> None:
        """As the agent wants it."""
        if self._port is not None:
            self._port.open(request_ids)

    def tell(self) -> None:
        """Behind a step, or commands: what can be read now."""
        if self._port is None:
            return
        growths, ended = self._port.grow(self._files.make)
        for growth in growths:
            file = self._files.growing_file(growth)
            if file.num_bytes:
                self._send(ImageGrown(growth.request_id, growth.attempt, growth.number, file, growth.num_bytes))
        if ended:
            self._files.release(ended)
        for number in ended:
            self._send(ImageEnded(number))
