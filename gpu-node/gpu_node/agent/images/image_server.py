"""Gives images to other nodes, over the admin port: a piece at a time, so that the loop that serves it goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog
from aiohttp import web

from gpu_node.agent.images.given_images import GivenImage, GivenImages, ImageRefusedError
from gpu_node.agent.images.piece_stream import PATH, head_of, num_body_bytes, parts
from gpu_node.agent.telemetry.image_metrics import count_failure, count_given

MAX_SERVED = 16
"""At a time, each with a piece on its way; who comes beyond is asked to come again."""

NUM_READERS = 2
"""Threads that make checksums."""

STALL_S = 5.0
"""A node that takes nothing for so long hangs, or is gone."""

_BEARER = "Bearer "

log = structlog.get_logger()


class ImageServer:
    """Whose images, ``given`` says: None between two epochs."""

    def __init__(
        self, given: Callable[[], GivenImages | None], stall_s: float = STALL_S, max_served: int = MAX_SERVED
    ) -> None:
        self._given = given
        self._stall_s = stall_s
        self._num_left = max_served
        self._readers = ThreadPoolExecutor(NUM_READERS, "image-read")

    def routes(self) -> list[web.RouteDef]:
        """For the application of the admin port."""
        return [web.get(PATH + "/{name}", self._give, allow_head=False)]

    def close(self) -> None:
        """Behind the last request."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        given = self._given()
        token = request.headers.get("Authorization", "").removeprefix(_BEARER)
        try:
            if given is None:
                raise ImageRefusedError(404, "there are no images")
            if not self._num_left:
                return web.Response(status=503, text="too many images are being fetched\n")
            image = given.claim(request.match_info["name"], token)
        except ImageRefusedError as error:
            count_failure("refused" if error.status == 403 else "gone")
            log.warning("image refused", status=error.status, reason=str(error), to=request.remote)
            return web.Response(status=error.status, text=f"{error}\n")
        is_whole = False
        self._num_left -= 1
        try:
            response = web.StreamResponse(headers={"Content-Length": str(num_body_bytes(len(image.content)))})
            await self._write(image, request, response)
            is_whole = True
        except TimeoutError:
            count_failure("slow")
            log.warning("image not taken", request_id=image.attempt.request_id, to=request.remote)
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._num_left += 1
            given.unclaim(image, is_whole=is_whole)
        return response

    async def _write(self, image: GivenImage, request: web.Request, response: web.StreamResponse) -> None:
        await response.prepare(request)
        pieces = deque(image.content[part] for part in parts(len(image.content)))
        head = self._head_of(pieces[0])
        while pieces:
            piece, data = pieces.popleft(), await head
            if pieces:
                head = self._head_of(pieces[0])  # while this one is on its way
            async with asyncio.timeout(self._stall_s):
                await response.write(data)
                await response.write(piece)
        async with asyncio.timeout(self._stall_s):
            await response.write_eof()
        count_given(len(image.content))

    def _head_of(self, piece: memoryview) -> asyncio.Future[bytes]:
        return asyncio.get_running_loop().run_in_executor(self._readers, head_of, piece)
