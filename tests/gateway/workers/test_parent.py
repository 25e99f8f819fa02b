"""The gateway with several workers as a process: what it says and how it ends where no worker can start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from cli.cluster.processes.ports import free_port

pytestmark = pytest.mark.slow

HOST = "127.0.0.1"
SECRET = "s3cret"


async def gateway(tmp_path: Path, tiny_file: Path) -> asyncio.subprocess.Process:
    """Two workers that do not find their Redis."""
    config = tmp_path / "cluster.yaml"
    values = {
        "models": [{"name": "tiny", "source": str(tiny_file), "max_model_len": 64}],
        "gateway": {"port": free_port(HOST), "workers": 2},
        "redis_url": f"redis://:{SECRET}@{HOST}:{free_port(HOST)}/0",
        "admin_port": free_port(HOST),
    }
    config.write_text(yaml.safe_dump(values))
    environment = {name: value for name, value in os.environ.items() if "TREADLE" not in name}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway"),
        env=environment | {"TREADLE_CONFIG": str(config), "TREADLE_ADMIN_PORT": str(free_port(HOST))},
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.fixture
async def process(tmp_path: Path, tiny_file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await gateway(tmp_path, tiny_file)
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


async def test_what_keeps_workers_from_starting_is_told_once_and_ends_the_gateway(
    process: asyncio.subprocess.Process,
) -> None:
    _, said = await process.communicate()
    text = said.decode()
    assert process.returncode == 2
    assert text.count("no Redis answers at") == 1, text
    assert SECRET not in text
    *_, last = text.splitlines()
    assert last == (
        "the gateway cannot start: worker 0 ended with status 2 before any was ready; what it has logged says why"
    )


async def test_it_may_be_stopped_before_a_worker_is_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while b"worker is started" not in await process.stderr.readline():
        pass  # the first of its lines
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0
