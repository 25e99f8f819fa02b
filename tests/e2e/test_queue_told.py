"""What clients are told while a cluster is full: the queue, their places, and that a promise cannot be kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.e2e.cluster import POLL_S, WAIT_S, Cluster

NUM_LONG = 8
LONG = {"model": "chat", "prompt": "he hello", "max_tokens": 400, "ignore_eos": True, "slo": "batch"}


@asynccontextmanager
async def loaded(http: aiohttp.ClientSession) -> AsyncIterator[None]:
    """Two long requests run, and others wait behind them."""

    async def ask() -> None:
        async with http.post("/v1/completions", json=LONG) as response:
            await response.read()

    clients = [asyncio.create_task(ask()) for _ in range(NUM_LONG)]
    try:
        yield
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def reported(http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get("/v1/queue") as response:
        assert response.status == 200
        report: dict[str, Any] = await response.json()
    return report


async def reported_that(http: aiohttp.ClientSession, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first report of which this is so."""
    while True:
        report = await reported(http)
        if is_so(report):
            return report
        await asyncio.sleep(POLL_S)


async def waiting_line(http: aiohttp.ClientSession) -> dict[str, Any]:
    """The line of the class that waits, as soon as two of its requests run."""
    while True:
        report = await reported(http)
        for line in report["data"]:
            if line["num_running"] == 2:
                assert not report["is_stale"]
                return dict(line)
        await asyncio.sleep(POLL_S)


async def test_clients_are_told_how_long_they_wait(predicted: Cluster) -> None:
    refused = predicted.metric("gateway", "treadle_refused_requests_total")
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession(predicted.url) as http, loaded(http):
        line = await waiting_line(http)
        assert (line["model"], line["slo_class"], line["num_waiting"]) == ("chat", "batch", NUM_LONG - 2)
        assert 1.0 < line["wait_s"] <= line["wait_p90_s"]

        place_wanted = LONG | {"stream": True, "stream_options": {"include_queue": True}}
        async with http.post("/v1/completions", json=place_wanted) as response:
            assert response.status == 200
            comment = (await response.content.readuntil(b"\n\n")).decode()
        place = json.loads(comment.removeprefix(": queue "))
        assert place["num_ahead"] == NUM_LONG - 2
        assert 1.0 < place["wait_s"] <= place["wait_p90_s"]

        async with http.post("/v1/completions", json=LONG | {"slo": "quick", "max_tokens": 1}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (429, "would_be_late"), error
            assert response.headers["x-treadle-dropped-reason"] == "saturated"
            assert int(response.headers["Retry-After"]) >= 1
        assert "too long for the promise 'quick' (ttft_s 1)" in error["message"]
    predicted.wait_idle()
    assert predicted.metric("gateway", "treadle_refused_requests_total") == refused + 1


async def test_what_has_run_is_not_shown_for_ever(predicted: Cluster) -> None:
    short = LONG | {"max_tokens": 40}
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession(predicted.url) as http:

        async def ask() -> None:
            async with http.post("/v1/completions", json=short) as response:
                assert response.status == 200
                await response.read()

        asking = asyncio.gather(*(ask() for _ in range(3)))  # one waits for the others, and is told when it runs alone
        await reported_that(http, lambda report: bool(report["data"]))
        await asking
        report = await reported_that(http, lambda report: not report["data"])
    assert not report["is_stale"]
    assert "treadle_queue_predicted_wait_seconds{" not in predicted.get("gateway", "/metrics")[1]
