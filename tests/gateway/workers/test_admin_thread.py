"""The gateway's admin port: it answers while the main loop is busy, and says when that loop hangs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from cli.cluster.processes.ports import free_port
from gateway.metrics.pulse import HANG_S, Pulse
from gateway.workers.admin_thread import served_aside
from shared.service.admin.admin import Admin, PortTakenError, serve_admin

HOST = "127.0.0.1"


class Clock:
    """Time as the test says it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def admin_port(admin: Admin) -> AsyncIterator[int]:
    port = free_port(HOST)
    async with served_aside(lambda: serve_admin(admin, HOST, port)):
        yield port


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{HOST}:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def admin(registry: CollectorRegistry | None = None, pulse: Pulse | None = None) -> Admin:
    return Admin(
        not_ready=lambda: "",
        status=lambda: {"inflight": 2},
        hangs=(pulse or Pulse()).hangs,
        registry=registry or CollectorRegistry(),
    )


async def test_it_answers_while_the_main_loop_does_not_turn() -> None:
    registry = CollectorRegistry()
    Gauge("treadle_test_held", "Held by this test", registry=registry).set(7)
    async with admin_port(admin(registry)) as port:
        # asked from the main loop's own thread: it does not turn until all four have answered
        assert ask(port, "/healthz") == (200, "ok\n")
        assert ask(port, "/readyz") == (200, "ready\n")
        assert json.loads(ask(port, "/status")[1]) == {"inflight": 2}
        assert "treadle_test_held 7.0" in ask(port, "/metrics")[1]


async def test_a_busy_loop_is_healthy_and_one_that_hangs_is_not() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    async with admin_port(admin(pulse=pulse)) as port:
        clock.now_s += HANG_S
        assert ask(port, "/healthz") == (200, "ok\n")
        clock.now_s += 1
        assert ask(port, "/healthz") == (503, f"the event loop has not turned for {HANG_S + 1:.0f} s\n")
        pulse.turn()
        assert ask(port, "/healthz") == (200, "ok\n")


async def test_a_taken_port_is_told_where_the_gateway_starts() -> None:
    async with admin_port(admin()) as port:
        with pytest.raises(PortTakenError, match=f"{HOST}:{port}"):
            async with served_aside(lambda: serve_admin(admin(), HOST, port)):
                raise AssertionError("it listens twice")


async def test_the_port_is_free_again_afterwards() -> None:
    async with admin_port(admin()) as port:
        pass
    runner = await serve_admin(admin(), HOST, port)
    await runner.cleanup()


async def test_a_running_loop_beats() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    clock.now_s += HANG_S + 1
    assert pulse.hangs()
    beating = pulse.beating(web.Application())
    await anext(beating)
    assert not pulse.hangs()
    with pytest.raises(StopAsyncIteration):
        await anext(beating)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "pulse"] == []
