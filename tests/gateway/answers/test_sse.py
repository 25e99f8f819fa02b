"""The framing of a stream, as a client without an HTTP library sees it, and clients that read late or never."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import web

from gateway.answers.event import DONE
from gateway.answers.sse import ClientGoneError, SseStream
from gateway.http.connections import Connections
from gateway.http.context import CONNECTIONS
from shared.service.admin.admin import listen

WAIT_S = 5.0
LARGE = "x" * (1 << 20)
MAX_LARGE = 64  # no connection holds that many


def served(answer: Callable[[SseStream], Awaitable[None]]) -> AbstractAsyncContextManager[tuple[str, int]]:
    """A server whose every answer is a stream."""

    async def handle(http: web.Request) -> web.StreamResponse:
        stream = SseStream(http)
        await stream.open()
        await answer(stream)
        return stream.response

    return listening(handle)


@asynccontextmanager
async def listening(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[tuple[str, int]]:
    """Where a server of one handler answers."""
    app = web.Application()
    app[CONNECTIONS] = Connections(1)
    app.router.add_get("/", handle)
    runner = await listen(app, "127.0.0.1", 0)
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


async def two_events(stream: SseStream) -> None:
    await stream.send({"n": 1})
    await stream.keep_alive()
    stream.put([{"n": 2}, {"n": 3}])
    await stream.close([{"n": 4}, DONE])


async def asked(place: tuple[str, int], version: str) -> tuple[bytes, bytes]:
    """Headers and the rest, until the server closes."""
    reader, writer = await asyncio.open_connection(*place)
    writer.write(f"GET / HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(-1), WAIT_S)
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


EVENTS = [
    b'data: {"n":1}\n\n',
    b": keep-alive\n\n",
    b'data: {"n":2}\n\ndata: {"n":3}\n\n',
    b'data: {"n":4}\n\ndata: [DONE]\n\n',
]


async def test_each_write_is_a_chunk_of_http_1_1() -> None:
    async with served(two_events) as place:
        head, body = await asked(place, "1.1")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"


async def test_an_older_client_reads_until_the_connection_is_closed() -> None:
    async with served(two_events) as place:
        head, body = await asked(place, "1.0")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Transfer-Encoding" not in head
    assert body == b"".join(EVENTS)


async def test_a_client_that_reads_late_gets_all_of_it() -> None:
    is_full = asyncio.Event()
    num_sent = 0

    async def answer(stream: SseStream) -> None:
        nonlocal num_sent
        while not stream.is_full:
            stream.put([{"n": num_sent, "text": LARGE}])
            num_sent += 1
            assert num_sent < MAX_LARGE
        is_full.set()
        await stream.drain()
        assert not stream.is_full
        await stream.close([])

    async with served(answer) as (host, port):
        reader, writer = await asyncio.open_connection(host, port, limit=2 * len(LARGE))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(is_full.wait(), WAIT_S)
        for number in range(num_sent):
            line = await asyncio.wait_for(reader.readuntil(b"}\n\n"), WAIT_S)
            assert json.loads(line[line.index(b"data: ") + 6 :]) == {"n": number, "text": LARGE}
        writer.close()


async def test_a_long_end_waits_for_its_client() -> None:
    async def answer(stream: SseStream) -> None:
        await stream.close([{"text": LARGE}] * 16)

    async with served(answer) as place:
        _, body = await asked(place, "1.0")
    assert body == b'data: {"text":"%b"}\n\n' % LARGE.encode() * 16


async def test_a_client_that_leaves_while_it_is_waited_for_is_noticed() -> None:
    is_full = asyncio.Event()
    heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def answer(stream: SseStream) -> None:
        try:
            while not stream.is_full:
                stream.put([{"text": LARGE}])
            is_full.set()
            await stream.drain()
            stream.put([{"text": LARGE}])
        except (ClientGoneError, asyncio.CancelledError) as error:
            heard.set_result(error)
            raise

    async with served(answer) as place:
        with socket.create_connection(place) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(is_full.wait(), WAIT_S)
        error = await asyncio.wait_for(heard, WAIT_S)
    assert isinstance(error, ClientGoneError | asyncio.CancelledError)


async def test_nothing_is_written_to_a_client_that_has_left() -> None:
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(http: web.Request) -> web.StreamResponse:
        stream = SseStream(http)
        await stream.open()
        assert http.transport is not None
        http.transport.abort()
        with pytest.raises(ClientGoneError):
            stream.put([{"n": 1}])
        heard.set_result(None)
        return stream.response

    async with listening(handle) as place:
        with socket.create_connection(place) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(heard, WAIT_S)
