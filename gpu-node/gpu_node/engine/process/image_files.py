"""Images between an engine's process and its agent's: files in memory that both map, so that no socket carries KV.

An image goes out in pieces, one between two steps: a gigabyte holds up no step for longer than a piece takes. It comes
in without a copy: its blocks are read where the agent has laid them.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from gpu_node.engine.process.protocol.protocol import NO_IMAGE, EngineEvent, ImageFile, ImageOpened
from gpu_node.engine.requests.image import Growth, HandedOver, SerialisedImage

PIECE_BYTES = 16 << 20
"""Written between two steps: some milliseconds."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Writing:
    """An image on its way into its file."""

    image: HandedOver
    fd: int
    left: deque[memoryview]
    told: Callable[[HandedOver, ImageFile], EngineEvent]
    num_written: int = 0


class ImageFiles:
    """Of one engine process. As `gpu_node.engine.process.commands.commands.ImagePort`.

    While an image is written it is there twice; the one that has been written counts (`Engine.release`).
    """

    def __init__(self, send: Callable[[EngineEvent], None], release: Callable[[list[int]], None]) -> None:
        """``release`` gives back the memory of images that cannot be written."""
        self._send = send
        self._release = release
        self._writing: deque[_Writing] = deque()
        self._open: dict[int, int] = {}
        """File descriptors of those that the agent has been told of, by number."""
        self._growing: dict[int, ImageFile] = {}
        """Of those, images that are not whole: where each is, and how large it is expected to become."""

    @property
    def is_writing(self) -> bool:
        """Whether `advance` has anything to do."""
        return bool(self._writing)

    def give(self, images: Iterable[HandedOver], told: Callable[[HandedOver, ImageFile], EngineEvent]) -> None:
        """Begin to write them; the agent is told of each when it is whole, with what ``told`` makes of it."""
        for image in images:
            pieces = deque(memoryview(piece) for piece in image.pieces)
            if self._growing.pop(image.number, None) is not None:
                num_written = len(pieces.popleft())  # the content has grown there
                self._writing.append(_Writing(image, self._open.pop(image.number), pieces, told, num_written))
                continue
            try:
                fd = os.memfd_create(f"image-{image.number}", os.MFD_CLOEXEC)
            except OSError as error:
                self._fail(image, told, error)
            else:
                self._writing.append(_Writing(image, fd, pieces, told))

    def make(self, number: int, num_bytes: int) -> memoryview:
        """Memory that the agent can read while it is written; what is not written takes none."""
        if not num_bytes:
            return memoryview(b"")
        fd = os.memfd_create(f"image-{number}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, num_bytes)
            memory = memoryview(mmap.mmap(fd, num_bytes))
        except OSError:
            os.close(fd)
            raise
        self._open[number] = fd
        self._growing[number] = ImageFile(f"/proc/{os.getpid()}/fd/{fd}", num_bytes)
        return memory

    def growing_file(self, growth: Growth) -> ImageFile:
        """As `commands.growth_commands.GrowthFiles`: blocks without content leave nothing to read."""
        return self._growing.get(growth.number, NO_IMAGE)

    def advance(self) -> None:
        """Write the next piece of the first."""
        if not self._writing:
            return
        first = self._writing[0]
        try:
            self._write_piece(first)
        except OSError as error:
            self._writing.popleft()
            os.close(first.fd)
            self._fail(first.image, first.told, error)
            return
        if not first.left:
            self._writing.popleft()
            self._open[first.image.number] = first.fd
            file = ImageFile(f"/proc/{os.getpid()}/fd/{first.fd}", first.num_written)
            self._send(first.told(first.image, file))

    @staticmethod
    def _write_piece(writing: _Writing) -> None:
        num_left = PIECE_BYTES
        while writing.left and num_left:
            part = writing.left[0][:num_left]
            num_bytes = os.pwrite(writing.fd, part, writing.num_written) if part else 0
            writing.num_written += num_bytes
            num_left -= num_bytes
            rest = writing.left[0][num_bytes:]
            if rest:
                writing.left[0] = rest
            else:
                writing.left.popleft()

    def _fail(self, image: HandedOver, told: Callable[[HandedOver, ImageFile], EngineEvent], error: OSError) -> None:
        log.warning("image of request %s not written: %s", image.request_id, error)
        self._release([image.number])
        self._send(told(image, NO_IMAGE))

    def take(self, file: ImageFile) -> SerialisedImage:
        """Map what the agent has laid down; a process that writes there changes its own copy."""
        if not file.num_bytes:
            return b""
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return memoryview(mmap.mmap(fd, file.num_bytes, access=mmap.ACCESS_COPY))
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:  # gone with the agent; or shorter than it said
            log.warning("image not opened: %s", error)
            return b""
        finally:
            self._send(ImageOpened(file))

    def release(self, numbers: Iterable[int]) -> None:
        """Close those that are open; unknown ones are ignored."""
        for number in numbers:
            self._growing.pop(number, None)
            fd = self._open.pop(number, None)
            if fd is not None:
                os.close(fd)
