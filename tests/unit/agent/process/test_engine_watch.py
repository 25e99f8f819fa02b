"""An engine that has work and is silent for too long is killed; silence without work, or in a load, is none."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.process.engine_process import EngineDiedError, EngineProcess
from gpu_node.agent.process.engine_watch import EngineWatch
from tests.unit.agent.events import entry, make_agent, queue, taken

TIMEOUT_S = 3.0


@pytest.fixture
async def engine() -> AsyncIterator[EngineProcess]:
    """A process that holds its end of the socket and says nothing."""
    ours, theirs = socket.socketpair()
    with theirs:
        silent = "import time; time.sleep(3600)"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", silent, pass_fds=[theirs.fileno()])
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    engine = EngineProcess(process, reader, writer)
    yield engine
    engine.kill()
    await engine.stop()


def busy_agent() -> AgentCore:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g", "a", 1)))
    agent.handle(taken("g", 1, entry("r")))
    return agent


async def test_a_silent_engine_with_work_is_killed_and_counts_as_dead(engine: EngineProcess) -> None:
    watch = EngineWatch(busy_agent(), engine, TIMEOUT_S)
    watch.look(2.0)
    watch.heard()
    watch.look(2.9)
    reading = asyncio.create_task(engine.events())
    watch.look(0.1)
    with pytest.raises(EngineDiedError, match=f"status -{signal.SIGKILL.value}"):
        await reading


async def test_time_in_which_the_core_hears_nothing_does_not_count(engine: EngineProcess) -> None:
    """While Redis is away, a step is published until it is out, and what the engine says waits behind it."""
    watch = EngineWatch(busy_agent(), engine, TIMEOUT_S)
    watch.look(2.0)
    with watch.held_up():
        watch.look(100.0)
    watch.look(0.9)
    reading = asyncio.create_task(engine.events())
    _, pending = await asyncio.wait([reading], timeout=0.1)
    assert pending
    watch.look(0.1)
    with pytest.raises(EngineDiedError, match=f"status -{signal.SIGKILL.value}"):
        await reading


async def test_an_engine_without_work_may_be_silent(engine: EngineProcess) -> None:
    watch = EngineWatch(make_agent("a", num_admittable=1), engine, TIMEOUT_S)
    watch.look(100.0)
    watch = EngineWatch(make_agent(), engine, TIMEOUT_S)
    watch.look(100.0)
    reading = asyncio.create_task(engine.events())
    _, pending = await asyncio.wait([reading], timeout=0.1)
    assert pending
    reading.cancel()
