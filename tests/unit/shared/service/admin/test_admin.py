"""What operators, probes and Prometheus ask a process, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from cli.cluster.processes.ports import free_port
from shared.errors import OperatorError
from shared.service.admin.admin import Admin, PortTakenError, serve_admin

HOST = "127.0.0.1"
COUNTER = Counter("treadle_test_admin_total", "Counted by this test", ["kind"])


class Process:
    """A process that serves its admin port, and what it says of itself."""

    def __init__(self) -> None:
        self.missing = ""
        self.port = free_port(HOST)

    @property
    def admin(self) -> Admin:
        return Admin(not_ready=lambda: self.missing, status=lambda: {"num_groups": 2, "nodes": ["a"]})


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = Process()
    runner = await serve_admin(process.admin, HOST, process.port)
    yield process
    await runner.cleanup()


@pytest.fixture
async def http(process: Process) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{HOST}:{process.port}") as session:
        yield session


async def test_it_is_alive_whatever_it_misses(process: Process, http: aiohttp.ClientSession) -> None:
    process.missing = "no core"
    async with http.get("/healthz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_it_is_ready_when_nothing_is_missing(process: Process, http: aiohttp.ClientSession) -> None:
    async with http.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (200, "ready\n")
    process.missing = "no core: waiting for the lease"
    async with http.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "no core: waiting for the lease\n")


async def test_status_is_json(http: aiohttp.ClientSession) -> None:
    async with http.get("/status") as answer:
        assert await answer.json() == {"num_groups": 2, "nodes": ["a"]}


async def test_metrics_are_readable_by_prometheus(http: aiohttp.ClientSession) -> None:
    COUNTER.labels("x").inc(3)
    async with http.get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        families = text_string_to_metric_families(await answer.text())
        samples = {(sample.name, *sample.labels.values()): sample.value for f in families for sample in f.samples}
    assert samples["treadle_test_admin_total", "x"] == 3


async def test_other_paths_and_methods_are_refused(http: aiohttp.ClientSession) -> None:
    async with http.get("/") as answer:
        assert answer.status == 404
    async with http.post("/status") as answer:
        assert answer.status == 405


async def test_a_taken_port_is_the_operators_to_put_right(process: Process) -> None:
    with pytest.raises(PortTakenError) as caught:
        await serve_admin(process.admin, HOST, process.port)
    assert isinstance(caught.value, OperatorError)
    assert f"cannot listen on {HOST}:{process.port}" in str(caught.value)
    assert "stop what uses it or configure another port" in str(caught.value)


async def test_a_port_is_free_again_after_the_runner_is_cleaned_up() -> None:
    process = Process()
    for _ in range(2):
        runner = await serve_admin(process.admin, HOST, process.port)
        await runner.cleanup()
