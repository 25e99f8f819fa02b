from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.redis.own_server import OwnServer


@pytest.fixture(autouse=True)
def _needs_redis(redis_program: Path) -> None:
    """Every test of this folder has a real server, from one fixture or another."""


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[OwnServer]:
    """A started Redis of the test's own, to be killed and started again."""
    server = OwnServer(tmp_path)
    try:
        await server.start()
        yield server
    finally:
        server.kill()
