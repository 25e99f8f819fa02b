"""Images that are read while they grow at their giver, for requests that will probably go on here: a few at a time.

What has been read is the beginning of the image, so a fetch of the whole goes on behind it. It is a luxury: it has a
part of the room that images have, and goes where an image that is waited for needs it.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import structlog

from gpu_node.agent.decisions.evictions import KV_IMAGE_TTL_S, MAX_AHEAD
from gpu_node.agent.images.image_transfer import BegunFile, ImageTransfer, TransferError
from gpu_node.agent.images.piece_stream import AHEAD, num_content_bytes
from shared.messages.requests.requests import ImageTicket

AHEAD_SHARE = 0.5
"""Of host memory for images, what those that are read ahead may be expected to take."""

log = structlog.get_logger()


class AheadTransfer(ImageTransfer):
    """Asks for what is new again and again, until it is stopped, or the image is gone."""

    seconds = 0.0
    """For which something has come."""

    def run(self) -> int:
        """The file descriptor of a file with what there is by then: `num_read` bytes; `TransferError` where it is gone.

        Bytes behind these may be anything.
        """
        fd = self._file()
        try:
            self._fetch(fd)
        except BaseException as error:
            if self._is_stopped:
                return fd
            os.close(fd)
            raise self._told(error) from error
        return fd

    def _fetch(self, fd: int) -> None:
        with self._connected() as asking:
            while not self._is_stopped:
                with asking(f"/{AHEAD}?from={self.num_read}") as response:
                    if response.status == 204:
                        response.read()
                        continue
                    self._check(response)
                    end = self.num_read + num_content_bytes(response.length or 0)
                    if not self.num_read < end <= self._ticket.num_bytes:
                        raise TransferError("truncated", f"{self._ticket.node} sends up to {end} of it")
                    began_s = perf_counter()
                    self._read(response, fd, end)
                    self.seconds += perf_counter() - began_s


@dataclass(slots=True)
class _Reading:
    ticket: ImageTicket
    transfer: AheadTransfer
    running: Future[int]
    timer: asyncio.TimerHandle


class AheadReads:
    """Of one epoch."""

    def __init__(self, capacity_bytes: int, connect_s: float, stall_s: float) -> None:
        """``capacity_bytes``: host memory for images of any kind."""
        self._most_bytes = int(AHEAD_SHARE * capacity_bytes)
        self._times = connect_s, stall_s
        self._threads = ThreadPoolExecutor(MAX_AHEAD, "image-ahead")
        self._reads: dict[str, _Reading] = {}

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def num_bytes(self) -> int:
        """That they are expected to take."""
        return sum(one.ticket.num_bytes for one in self._reads.values())

    def num_read(self, url: str) -> int:
        """Bytes of an image that are there; 0 of unknown ones."""
        reading = self._reads.get(url)
        return reading.transfer.num_read if reading is not None else 0

    def begin(self, ticket: ImageTicket) -> None:
        """Read an image from now on, where there is room beside the others."""
        has_room = self.num_bytes + ticket.num_bytes <= self._most_bytes and len(self._reads) < MAX_AHEAD
        if ticket.url in self._reads or not has_room:
            return
        transfer = AheadTransfer(ticket, *self._times)
        running = self._threads.submit(transfer.run)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(KV_IMAGE_TTL_S, self.drop, ticket.url)
        reading = self._reads[ticket.url] = _Reading(ticket, transfer, running, timer)
        running.add_done_callback(
            lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._over, reading)
        )

    def _over(self, reading: _Reading) -> None:
        """It has ended by itself: the image is gone, or its giver is. Nothing is lost by that."""
        if self._reads.get(reading.ticket.url) is reading:
            log.info("image not read ahead", node=reading.ticket.node, error=str(reading.running.exception()))
            self.drop(reading.ticket.url)

    async def take(self, ticket: ImageTicket) -> BegunFile | None:
        """What has been read of an image that is whole now, for the fetch of the rest; None where there is nothing.

        The file belongs to the caller.
        """
        reading = self._reads.get(ticket.url)
        if reading is None:
            return None
        self._forget(reading)
        reading.transfer.stop()
        try:
            fd = await outcome(reading.running)
        except TransferError:
            return None
        except asyncio.CancelledError:
            reading.running.add_done_callback(close_unwanted)
            raise
        if reading.ticket.token != ticket.token or reading.transfer.num_read > ticket.num_bytes:
            os.close(fd)
            return None
        return BegunFile(fd, reading.transfer.num_read, reading.transfer.seconds)

    def drop_newest(self) -> bool:
        """An image that is waited for needs its room; whether there was any."""
        url = next(reversed(self._reads), "")
        self.drop(url)
        return bool(url)

    def drop(self, url: str) -> None:
        """What has been read will not be used; unknown ones are ignored."""
        reading = self._reads.get(url)
        if reading is not None:
            self._forget(reading)
            reading.transfer.stop()
            reading.running.add_done_callback(close_unwanted)

    def _forget(self, reading: _Reading) -> None:
        reading.timer.cancel()
        del self._reads[reading.ticket.url]

    def close(self) -> None:
        """The epoch is over."""
        for url in list(self._reads):
            self.drop(url)
        self._threads.shutdown(wait=False, cancel_futures=True)


async def outcome(running: Future[int]) -> int:
    """What a thread brings, or raises. A reader that is cancelled before it fails does not hear of that, and nobody
    has to: `asyncio.shield` alone would have the loop tell it as an error that was never retrieved."""
    waiting = asyncio.wrap_future(running)
    waiting.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return await asyncio.shield(waiting)


def close_unwanted(done: Future[int]) -> None:
    """It came after all, and is not awaited any more."""
    if not done.cancelled() and done.exception() is None:
        os.close(done.result())
