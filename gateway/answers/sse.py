"""Server-sent events to one client. A client that does not read is a client that left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway.answers.event import SseEvent, written
from gateway.http.context import CONNECTIONS, KEYS
from gateway.openai.answers.queue_answers import PlaceComment
from shared.messages.requests.requests import QueuePlace

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # tells nginx to pass each event on at once
}
MAX_UNTIMED_BYTES = 16 << 10  # behind nothing else, these are taken by the connection's buffer: no client is waited for


class ClientGoneError(Exception):
    """The client does not read this stream any more."""


class SseStream:
    """One response of events. Headers go out with `open`, and with them the freedom to answer with an error status.

    aiohttp makes the headers and the end. What lies between is written to the connection here, framed as a chunk of
    HTTP/1.1 where the client speaks that: one event a token is what this process mostly does, and the way through
    aiohttp's layers costs more than all that stands in this file. No client is waited for until its connection holds
    more than it should.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._write_s = request.app[CONNECTIONS].timeouts.write_s
        self.response = web.StreamResponse(headers=_HEADERS)
        self._writer: AbstractStreamWriter | None = None
        self._transport = request.transport
        self._protocol = request.protocol
        self._is_chunked = request.version >= HttpVersion11  # an older client reads until the connection is closed

    @property
    def is_open(self) -> bool:
        """Headers are out: a failure can be told by an event only."""
        return self.response.prepared

    async def open(self) -> None:
        """Send the headers, unless they are out."""
        if self.is_open:
            return
        if self._is_chunked:
            self.response.enable_chunked_encoding()
        try:
            self._writer = await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGoneError from error

    @property
    def is_full(self) -> bool:
        """The client takes less than it is sent: there is something to `drain`."""
        return self._protocol.writing_paused

    def put(self, events: Sequence[SseEvent]) -> None:
        """Send events, all in one write, without waiting for the client."""
        if len(events) == 1:  # a token, mostly
            self._write(written(events[0]))
        elif events:
            self._write(b"".join([written(event) for event in events]))

    async def send(self, *events: SseEvent) -> None:
        """The same, and wait until the client has taken most of what was sent."""
        self.put(events)
        await self.drain()

    async def show_place(self, place: QueuePlace) -> None:
        """Send where the request stands, as a comment, which clients skip unless they know of it."""
        told = PlaceComment.of(place, own=self._request.app[KEYS].ring.has_tenants)
        self._write(b": queue %b\n\n" % msgspec.json.encode(told))
        await self.drain()

    async def keep_alive(self) -> None:
        """Send a comment, which clients skip: proxies close connections that are silent."""
        self._write(b": keep-alive\n\n")
        await self.drain()

    async def close(self, events: Sequence[SseEvent]) -> None:
        """Send the last events and, in the same write, the end of the response."""
        last = b"".join([written(event) for event in events])
        try:
            if self._is_idle and len(last) <= MAX_UNTIMED_BYTES:
                await self.response.write_eof(last)  # which waits for nothing
                return
            async with asyncio.timeout(self._write_s):
                await self.response.write_eof(last)
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError from error

    async def drain(self) -> None:
        """Until the client has taken most of what was sent."""
        if not self.is_full:
            return
        assert self._writer is not None, "it is open"
        try:
            async with asyncio.timeout(self._write_s):
                await self._writer.drain()
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError from error

    @property
    def is_lost(self) -> bool:
        """The client is not connected any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def _is_idle(self) -> bool:
        """All that was sent is written to the connection."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ClientGoneError
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
