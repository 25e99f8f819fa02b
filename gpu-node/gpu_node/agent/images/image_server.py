"""Gives images to other nodes, over the admin port: a piece at a time, so that the loop that serves it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog
from aiohttp import web

from gpu_node.agent.images.given_images import GivenImage, GivenImages, ImageRefusedError
from gpu_node.agent.images.piece_stream import AHEAD, PATH, head_of, num_body_bytes, parts
from gpu_node.agent.telemetry.image_metrics import count_failure, count_given

MAX_SERVED = 16
"""At a time, each with a piece on its way; a node beyond these is asked to come again."""

MAX_READ_AHEAD = 16
"""Nodes that read images while they grow, and wait for more, at a time; others get whole ones."""

AHEAD_WAIT_S = 1.0
"""Until a reader that waits for more is told that there is nothing yet: less than `STALL_S`, by which it gives up."""

MAX_AHEAD_BYTES = 64 << 20
"""Of an answer to it: what is on its way when the image is whole, and another node is to have it."""

NUM_READERS = 2
"""Threads that make checksums."""

STALL_S = 5.0
"""A node that takes nothing for so long hangs, or is gone."""

MAX_DIGITS = 16
"""Of a number of bytes."""

_BEARER = "Bearer "

log = structlog.get_logger()


class ImageServer:
    """``given`` says which images: None between two epochs."""

    def __init__(
        self, given: Callable[[], GivenImages | None], stall_s: float = STALL_S, max_served: int = MAX_SERVED
    ) -> None:
        self._given = given
        self._stall_s = stall_s
        self._num_left = max_served
        self._num_left_ahead = MAX_READ_AHEAD
        self._readers = ThreadPoolExecutor(NUM_READERS, "image-read")

    def routes(self) -> list[web.RouteDef]:
        """For the application of the admin port."""
        return [
            web.get(PATH + "/{name}", self._give, allow_head=False),
            web.get(PATH + "/{name}/" + AHEAD, self._give_ahead, allow_head=False),
        ]

    def close(self) -> None:
        """Behind the last request."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        try:
            given, (name, token, first) = self._holder(), _asked(request)
            if not self._num_left:
                return web.Response(status=503, text="too many images are being fetched\n")
            image = given.claim(name, token, first)
        except ImageRefusedError as error:
            count_failure("refused" if error.status == 403 else "gone")
            log.warning("image refused", status=error.status, reason=str(error), to=request.remote)
            return web.Response(status=error.status, text=f"{error}\n")
        is_whole = False
        self._num_left -= 1
        try:
            response, is_whole = await self._write(image, slice(first, len(image.content)), request)
        finally:
            self._num_left += 1
            given.unclaim(image, is_whole=is_whole)
        return response

    def _holder(self) -> GivenImages:
        given = self._given()
        if given is None:
            raise ImageRefusedError(404, "there are no images")
        return given

    async def _give_ahead(self, request: web.Request) -> web.StreamResponse:
        """What there is of an image that grows, behind what the reader has; 204 where there is no more yet."""
        if not self._num_left_ahead:
            return web.Response(status=503, text="too many images are read ahead\n")
        self._num_left_ahead -= 1
        try:
            given, (name, token, first) = self._holder(), _asked(request)
            image = given.read(name, token)
            if image.end_ahead <= first:
                await _waited_for(image.grown)
                image = given.read(name, token)  # it may be gone
            end = min(image.end_ahead, first + MAX_AHEAD_BYTES)
            if end <= first:
                return web.Response(status=204)
            response, _ = await self._write(image, slice(first, end), request)
            return response
        except ImageRefusedError as error:  # it has left for another node, or goes nowhere: as a rule nothing is wrong
            return web.Response(status=error.status, text=f"{error}\n")
        finally:
            self._num_left_ahead += 1

    async def _write(self, image: GivenImage, part: slice, request: web.Request) -> tuple[web.StreamResponse, bool]:
        """The answer with a part of an image, and whether it was taken."""
        content, num_bytes = image.content, part.stop - part.start
        response = web.StreamResponse(headers={"Content-Length": str(num_body_bytes(num_bytes))})
        try:
            await response.prepare(request)
            pieces = deque(content[one] for one in parts(part.stop, part.start))
            head = self._head_of(pieces[0]) if pieces else None
            while head is not None:
                piece, data = pieces.popleft(), await head
                head = self._head_of(pieces[0]) if pieces else None  # while this one is on its way
                async with asyncio.timeout(self._stall_s):
                    await response.write(data)
                    await response.write(piece)
            async with asyncio.timeout(self._stall_s):
                await response.write_eof()
        except TimeoutError:
            count_failure("slow")
            log.warning("image not taken", request_id=image.attempt.request_id, to=request.remote)
            if request.transport is not None:
                request.transport.abort()
            return response, False
        count_given(num_bytes)
        return response, True

    def _head_of(self, piece: memoryview) -> asyncio.Future[bytes]:
        return asyncio.get_running_loop().run_in_executor(self._readers, head_of, piece)


def _asked(request: web.Request) -> tuple[str, str, int]:
    """Name, token, and the byte from which on it is wanted."""
    token = request.headers.get("Authorization", "").removeprefix(_BEARER)
    first = request.query.get("from", "0")
    if not (first.isascii() and first.isdigit() and len(first) <= MAX_DIGITS):
        raise ImageRefusedError(400, "from is no number of bytes")
    return request.match_info["name"], token, int(first)


async def _waited_for(event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AHEAD_WAIT_S):
            await event.wait()
