"""The health check of the images, as a process of its own, against a real admin port."""

from __future__ import annotations

import asyncio
import os
import sys

from cli.cluster.processes.ports import free_port
from shared.config.config import ADMIN_PORT_ENV
from shared.processes.probe import ADMIN_PORT_ENV as PROBED_ENV
from shared.service.admin.admin import Admin, serve_admin

HOST = "127.0.0.1"


async def probe(*arguments: str, own_port: int | None = None) -> tuple[int | None, str, str]:
    """Exit status, what it printed, and what it complained of."""
    environment = {name: value for name, value in os.environ.items() if name != ADMIN_PORT_ENV}
    if own_port is not None:
        environment[ADMIN_PORT_ENV] = str(own_port)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.processes.probe", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_it_says_what_the_process_says() -> None:
    port = free_port(HOST)
    missing = "no model yet"
    runner = await serve_admin(Admin(not_ready=lambda: missing, status=lambda: {"num_groups": 2}), HOST, port)
    try:
        assert await probe("--port", str(port)) == (1, "no model yet\n", "")
        missing = ""
        assert await probe(own_port=port) == (0, "ready\n", "")
        assert await probe("/status", own_port=port) == (0, '{"num_groups": 2}', "")
        status, _, _ = await probe("/nothing", own_port=port)
        assert status == 1
    finally:
        await runner.cleanup()


async def test_a_process_that_is_not_there_is_not_ready() -> None:
    port = free_port(HOST)
    status, out, err = await probe("--port", str(port))
    assert (status, out) == (1, "")
    assert err.startswith(f"port {port} does not answer: ")


async def test_without_a_port_it_says_how_to_name_one() -> None:
    status, out, err = await probe()
    assert (status, out) == (2, "")
    assert "the following arguments are required: --port" in err


def test_it_reads_the_port_that_processes_answer_on() -> None:
    assert PROBED_ENV == ADMIN_PORT_ENV
