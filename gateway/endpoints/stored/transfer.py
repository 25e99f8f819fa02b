"""Bodies and answers that pass through the gateway piece by piece: nothing of them is held here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
import structlog
from aiohttp import web

from gateway.http import encodings
from gateway.http.body import read_timeout_s
from gateway.http.context import CLIENT, CONNECTIONS, REQUEST_ID, TRANSFERS
from gateway.http.flush import give_up
from gateway.openai.errors import errors

PIECE_BYTES = 64 << 10

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def pass_on(
    http: web.Request,
    most: int,
    too_large: errors.ApiError,
    take: Callable[[AsyncIterator[bytes]], Awaitable[T]],
) -> T:
    """Give a body of up to ``most`` bytes on to ``take`` as it comes; what that answers. ``too_large`` for more."""
    if encodings.encoding_of(http):
        raise errors.unsupported_body("content encoding", http.headers["Content-Encoding"], "none")
    if (http.content_length or 0) > most:
        raise too_large
    body = _Body(http, most)
    with http.app[TRANSFERS].one(http[CLIENT].tenant):
        try:
            async with asyncio.timeout(read_timeout_s(http.content_length or most)):
                return await take(body.pieces())
        except TimeoutError as error:
            raise errors.ApiError(408, "the body did not arrive in time", code="request_timeout") from error
        except errors.ApiError as error:
            if body.is_too_large:
                raise too_large from error
            raise


async def send_pieces(http: web.Request, response: web.StreamResponse, pieces: AsyncIterable[bytes]) -> None:
    """Write an answer no faster than its client reads it. One that is cut must not look whole."""
    write_s = http.app[CONNECTIONS].timeouts.write_s
    await response.prepare(http)
    try:
        async for piece in pieces:
            async with asyncio.timeout(write_s):
                await response.write(piece)
        await response.write_eof()
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
        _log.warning("download_cut", request_id=http[REQUEST_ID], problem=str(error) or type(error).__name__)
        give_up(http)


class _Body:
    def __init__(self, http: web.Request, most: int) -> None:
        self._http = http
        self._most = most
        self.is_too_large = False

    async def pieces(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for piece in self._http.content.iter_chunked(PIECE_BYTES):
            num_bytes += len(piece)
            if num_bytes > self._most:
                self.is_too_large = True
                raise ValueError("the body is too large")
            yield piece
