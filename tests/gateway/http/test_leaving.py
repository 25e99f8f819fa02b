"""A gateway that is asked to stop: no client with a kept connection loses a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from gateway.http.leaving import Leaving
from shared.service.admin.admin import listen

HOST = "127.0.0.1"


@dataclass
class Server:
    """An application with one slow path and one quick one."""

    leaving: Leaving
    runner: web.AppRunner
    started: asyncio.Event
    go_on: asyncio.Event
    url: str


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    leaving, started, go_on = Leaving(goodbye_s=0.05), asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        started.set()
        await go_on.wait()
        return web.Response(text="whole")

    async def quick(_: web.Request) -> web.Response:
        return web.Response(text="quick")

    app = web.Application(middlewares=[leaving.middleware()])
    app.on_response_prepare.append(leaving.tell)
    app.add_routes([web.get("/slow", slow), web.get("/quick", quick)])
    runner = await listen(app, HOST, 0, drain_s=0.1)
    host, port = runner.addresses[0][:2]
    yield Server(leaving, runner, started, go_on, f"http://{host}:{port}")
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def ignored() -> None:
    """Answers go on whatever they are told."""


async def begun(server: Server, drain_s: float = 60.0, stop: Callable[[], None] = ignored) -> asyncio.Task[None]:
    """It has been asked to stop, and takes no more connections."""
    leave = asyncio.create_task(server.leaving.leave(server.runner, drain_s, stop))
    await asyncio.sleep(0)
    assert server.leaving.has_begun
    return leave


async def test_a_kept_connection_gets_its_next_answer_and_is_told_to_be_the_last(
    server: Server, http: aiohttp.ClientSession
) -> None:
    async with http.get(f"{server.url}/quick") as answer:
        assert "Connection" not in answer.headers
    leave = await begun(server)
    async with http.get(f"{server.url}/quick") as answer:
        assert (answer.status, await answer.text(), answer.headers["Connection"]) == (200, "quick", "close")
    await leave
    with pytest.raises(aiohttp.ClientConnectorError):
        await http.get(f"{server.url}/quick")


async def test_what_runs_may_end(server: Server, http: aiohttp.ClientSession) -> None:
    asked = asyncio.create_task(http.get(f"{server.url}/slow"))
    await server.started.wait()
    leave = await begun(server)
    server.go_on.set()
    async with await asked as answer:
        assert (await answer.text(), answer.headers["Connection"]) == ("whole", "close")
    await leave


async def test_what_runs_for_too_long_is_asked_to_end(server: Server, http: aiohttp.ClientSession) -> None:
    asked = asyncio.create_task(http.get(f"{server.url}/slow"))
    await server.started.wait()
    leave = await begun(server, drain_s=0.1, stop=server.go_on.set)
    async with await asked as answer:
        assert await answer.text() == "whole"
    await leave


async def test_what_goes_on_nevertheless_is_cut_off(server: Server, http: aiohttp.ClientSession) -> None:
    asked = asyncio.create_task(http.get(f"{server.url}/slow"))
    await server.started.wait()
    await (await begun(server, drain_s=0.1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await asked


async def test_a_connection_that_is_idle_is_closed(server: Server, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{server.url}/quick") as answer:
        assert answer.status == 200
    await (await begun(server))
    assert server.leaving.num_answering == 0


async def test_without_connections_it_leaves_at_once(server: Server) -> None:
    await (await begun(server))
    assert server.runner.server is None
