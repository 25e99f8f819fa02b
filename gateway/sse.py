"""Server-sent events to one client, with OpenAI's framing. A client that does not read is a client that left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.context import CONNECTIONS, KEYS
from gateway.queue_answers import Place
from shared.requests import QueuePlace

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # tells nginx to pass each event on at once
}
_encode = msgspec.json.encode


class ClientGoneError(Exception):
    """Nobody reads this stream any more."""


class SseStream:
    """One response of events. Headers go out with `open`, and with them the freedom to answer with an error status."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._write_s = request.app[CONNECTIONS].timeouts.write_s
        self.response = web.StreamResponse(headers=_HEADERS)

    @property
    def is_open(self) -> bool:
        """Headers are out: a failure can be told by an event only."""
        return self.response.prepared

    async def open(self) -> None:
        """Send the headers, unless they are out."""
        if self.is_open:
            return
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGoneError from error

    async def send(self, *events: msgspec.Struct | Mapping[str, Any]) -> None:
        """Send events, all in one write."""
        if events:
            await self._write(b"".join(b"data: %b\n\n" % _encode(event) for event in events))

    async def show_place(self, place: QueuePlace) -> None:
        """Send where the request stands, as a comment, which clients skip unless they know of it."""
        told = Place.of(place, own=self._request.app[KEYS].ring.has_tenants)
        await self._write(b": queue %b\n\n" % _encode(told))

    async def keep_alive(self) -> None:
        """Send a comment, which clients skip: proxies close connections that are silent."""
        await self._write(b": keep-alive\n\n")

    async def close(self) -> None:
        """Say that the stream is complete."""
        await self._write(b"data: [DONE]\n\n", is_last=True)

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._write_s):
                await (self.response.write_eof(data) if is_last else self.response.write(data))
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError from error
