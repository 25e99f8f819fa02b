"""Connections are taken many in one round of the loop, and those that were taken are served when no more are."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
import structlog
import uvloop
from aiohttp import web

from gateway.workers.sockets import open_sockets
from shared.service.admin.acceptor import ACCEPTS_A_ROUND, Acceptor, ManyAtATime
from shared.service.admin.admin import PortTakenError
from tests.redis.waiting import until

HOST = "127.0.0.1"


def connected(stack: ExitStack, port: int, number: int) -> list[socket.socket]:
    """Clients that the kernel has connected, whether or not anybody has taken them."""
    return [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(number)]


async def rounds_to_take(number: int) -> int:
    """Rounds of the loop until so many connections have their protocol."""
    made: list[asyncio.BaseTransport] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    (listener,) = open_sockets(HOST, 0)
    acceptor = Acceptor(listener, Protocol)
    num_rounds = 0
    with ExitStack() as stack:
        connected(stack, listener.getsockname()[1], number)
        while len(made) < number:
            await asyncio.sleep(0)
            num_rounds += 1
        for transport in made:
            transport.close()
        acceptor.close()
    return num_rounds


def test_many_connections_are_taken_in_few_rounds() -> None:
    assert uvloop.run(rounds_to_take(4 * ACCEPTS_A_ROUND)) < ACCEPTS_A_ROUND, "one a round is what the loop does alone"


@pytest.fixture
async def site() -> AsyncIterator[tuple[web.AppRunner, asyncio.Event]]:
    """A server whose answers wait for the event."""
    answer = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await answer.wait()
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, shutdown_timeout=5.0)
    await runner.setup()
    (listener,) = open_sockets(HOST, 0)
    await ManyAtATime(runner, listener).start()
    yield runner, answer
    await runner.cleanup()


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    try:
        return (await reader.read()).rpartition(b"\r\n")[2]
    finally:
        writer.close()


async def test_aiohttp_serves_by_it_and_stops_in_good_order(site: tuple[web.AppRunner, asyncio.Event]) -> None:
    runner, answer = site
    ((host, port),) = runner.addresses
    assert host == HOST
    asked = asyncio.create_task(ask(port))

    async def is_taken() -> bool:
        return bool(runner.server and runner.server.connections)

    async def takes_no_more() -> bool:
        return not runner.sites

    await until(is_taken)
    cleanup = asyncio.create_task(runner.cleanup())
    await until(takes_no_more)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)
    answer.set()
    assert await asked == b"ok", "who was there is answered"
    await cleanup


async def test_a_process_without_files_for_more_takes_them_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.service.admin.acceptor.RETRY_S", 0.01)
    made = asyncio.Event()

    async def is_told() -> bool:
        return bool(logs)

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.set()
            transport.close()

    (listener,) = open_sockets(HOST, 0)
    acceptor = Acceptor(listener, Protocol)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack, structlog.testing.capture_logs() as logs:
        connected(stack, listener.getsockname()[1], 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (listener.fileno(), limit[1]))
        try:
            await until(is_told)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        assert not made.is_set()
        await asyncio.wait_for(made.wait(), 5.0)
    assert [log["event"] for log in logs] == ["no room for further connections"]
    acceptor.close()
    acceptor.close()


def test_a_port_that_is_taken_on_one_address_leaves_none_open() -> None:
    (taken,) = open_sockets(HOST, 0)
    taken.listen()
    with taken, pytest.raises(PortTakenError, match="in use"):
        open_sockets(HOST, taken.getsockname()[1])
