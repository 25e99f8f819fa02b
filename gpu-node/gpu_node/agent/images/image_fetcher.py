"""Images that this node fetches for requests that it has pulled: a few at a time, as far as host memory has room."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from gpu_node.agent.images.image_ahead import AheadReads, close_unwanted, outcome
from gpu_node.agent.images.image_transfer import BUSY, CONNECT_S, STALL_S, BegunFile, ImageTransfer, TransferError
from gpu_node.agent.telemetry.image_metrics import count_failure, count_fetched, count_read_ahead
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, ImageFile
from shared.messages.requests.requests import ImageTicket

MAX_FETCHES = 4
"""At a time; others wait for their turn."""

FETCH_S = 60.0
"""From the turn to the end of one: 60 GB over a fast network, 6 GB over a slow one."""

TURN_S = 60.0
"""For the turn, and for room: then those before have been too many, and it is computed again."""

LOOK_S = 0.02
"""Between two looks whether the engine has made room: it does between two steps."""

BUSY_S = 0.1
"""Until a giver that serves others is asked again."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long things may take."""

    fetch_s: float = FETCH_S
    turn_s: float = TURN_S
    connect_s: float = CONNECT_S
    stall_s: float = STALL_S


LIMITS = FetchLimits()


class ImageFetcher:
    """Of one epoch. What it has fetched it keeps open until the engine has opened it (`close_file`)."""

    def __init__(self, capacity_bytes: int, used_bytes: Callable[[], int], limits: FetchLimits = LIMITS) -> None:
        """``capacity_bytes``: host memory for images; ``used_bytes``: what the engine has of it by now."""
        self._capacity_bytes = capacity_bytes
        self._used_bytes = used_bytes
        self._limits = limits
        self._slots = asyncio.Semaphore(MAX_FETCHES)
        self._threads = ThreadPoolExecutor(MAX_FETCHES, "image-fetch")
        self.ahead = AheadReads(capacity_bytes, limits.connect_s, limits.stall_s)
        self._open: dict[str, tuple[int, int]] = {}
        """By path, file descriptor and bytes of what the engine has not opened yet."""
        self._coming_bytes = 0
        self.is_closed = False

    def read_ahead(self, ticket: ImageTicket) -> None:
        """Read an image that grows, which will probably be fetched here, as far as there is room."""
        if self._used_bytes() + self._held_bytes + ticket.num_bytes <= self._capacity_bytes:
            self.ahead.begin(ticket)

    async def fetch(self, ticket: ImageTicket) -> tuple[ImageFile, float]:
        """The image and the seconds that it took on its way; `NO_IMAGE` where it is lost, which is counted and logged.

        Of what has been read ahead, only the rest has to come. When it is cancelled nothing of the image stays.
        """
        try:
            async with asyncio.timeout(self._limits.turn_s):
                await self._slots.acquire()
        except TimeoutError:
            self.ahead.drop(ticket.url)
            return self._lost(ticket, TransferError("turn", "too many are before it")), 0.0
        begun: BegunFile | None = None
        try:
            begun = await self.ahead.take(ticket)
            await self._wait_for_room(ticket.num_bytes)
            try:
                return await self._fetch_in_turn(ticket, begun)
            finally:
                self._coming_bytes -= ticket.num_bytes
        except TransferError as error:
            return self._lost(ticket, error), 0.0
        finally:
            if begun is not None:
                os.close(begun.fd)
            self._slots.release()

    async def _wait_for_room(self, num_bytes: int) -> None:
        """Take room; `TransferError` where there is none in time."""
        clock = asyncio.get_running_loop().time
        by_s = clock() + self._limits.turn_s
        while self._used_bytes() + self._held_bytes + num_bytes > self._capacity_bytes:
            if self.ahead.drop_newest():
                continue
            if num_bytes > self._capacity_bytes or clock() > by_s:
                raise TransferError("room", f"evicted_kv_bytes has no room for its {num_bytes} bytes")
            await asyncio.sleep(LOOK_S)
        self._coming_bytes += num_bytes

    @property
    def _held_bytes(self) -> int:
        opened = sum(num_bytes for _, num_bytes in self._open.values())
        return self._coming_bytes + self.ahead.num_bytes + opened

    async def _fetch_in_turn(self, ticket: ImageTicket, begun: BegunFile | None) -> tuple[ImageFile, float]:
        """Again and again while its giver serves others."""
        clock = asyncio.get_running_loop().time
        by_s = clock() + self._limits.turn_s
        while True:
            try:
                return await self._fetch(ticket, begun)
            except TransferError as error:
                if error.reason != BUSY or clock() > by_s:
                    raise
            await asyncio.sleep(BUSY_S)

    async def _fetch(self, ticket: ImageTicket, begun: BegunFile | None) -> tuple[ImageFile, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        transfer = ImageTransfer(ticket, self._limits.connect_s, self._limits.stall_s, begun)
        running = self._threads.submit(transfer.run)
        try:
            async with asyncio.timeout(self._limits.fetch_s):
                fd = await outcome(running)
        except (TimeoutError, asyncio.CancelledError) as error:
            transfer.stop()
            running.add_done_callback(close_unwanted)
            if isinstance(error, TimeoutError):
                raise TransferError("slow", f"{ticket.node} takes longer than {self._limits.fetch_s:g} s") from None
            raise
        seconds = loop.time() - began_s
        count_fetched(ticket.num_bytes, seconds)
        if begun is not None:
            count_read_ahead(begun.num_bytes)
            seconds += begun.seconds
        file = ImageFile(f"/proc/{os.getpid()}/fd/{fd}", ticket.num_bytes)
        self._open[file.path] = fd, ticket.num_bytes
        return file, seconds

    def _lost(self, ticket: ImageTicket, error: TransferError) -> ImageFile:
        count_failure(error.reason)
        log.warning("image not fetched", node=ticket.node, reason=error.reason, error=str(error))
        return NO_IMAGE

    def close_file(self, file: ImageFile) -> None:
        """The engine has it open, or it is not needed."""
        found = self._open.pop(file.path, None)
        if found is not None:
            os.close(found[0])

    def close(self) -> None:
        """The epoch is over, and all fetches are cancelled."""
        for path in list(self._open):
            self.close_file(ImageFile(path, 0))
        self.ahead.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
