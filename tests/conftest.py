"""Fixtures shared by all suites: a real Redis (or Valkey) of the session's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from cli.cluster.ports import free_port
from cli.cluster.redis_server import find_server
from shared.bus.bus import connect

START_TRIES = 200

if shutil.which("nvidia-smi") is None:
    # kernels of the CUDA device run on the CPU; Triton reads this when it is imported, which others may do first
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server started for this session, empty, gone afterwards."""
    if url := os.environ.get("TREADLE_TEST_REDIS_URL"):
        yield url
        return
    port = free_port("127.0.0.1")
    data: Path = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(data)]
    with (data / "log").open("wb") as log, subprocess.Popen([str(find_server()), *options], stdout=log) as server:
        try:
            url = f"redis://127.0.0.1:{port}/0"
            _wait_until_up(url)
            yield url
        finally:
            server.terminate()


def _wait_until_up(url: str) -> None:
    with SyncRedis.from_url(url) as client:
        for _ in range(START_TRIES):
            try:
                client.ping()
            except RedisConnectionError:
                os.sched_yield()
                subprocess.run(["sleep", "0.05"], check=True)
            else:
                return
    raise TimeoutError("the Redis of the tests did not start")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of an empty database."""
    client = connect(redis_url)
    await client.flushdb()
    yield client
    await client.aclose()
