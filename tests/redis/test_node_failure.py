"""A defect in an agent's decisions ends its epoch and its process; the cluster hears of it at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_node.agent.decisions.actions import AgentAction, AgentEvent
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.process.engine_process import EngineProcess
from gpu_node.agent.process.epoch import Epoch
from shared.bus import streams
from shared.config.engines.engine import EngineOptions
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeGone
from shared.messages.requests.requests import VirtualQueue
from tests.redis.waiting import until


class BrokenCore(AgentCore):
    """Fails at the first message."""

    def handle(self, event: AgentEvent) -> list[AgentAction]:
        if not isinstance(event, Message):
            return super().handle(event)
        raise ZeroDivisionError(f"at {type(event).__name__}")


@pytest.fixture
async def engine() -> AsyncIterator[EngineProcess]:
    """One that has nothing to say."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec("cat", stdin=theirs.fileno(), stdout=asyncio.subprocess.DEVNULL)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    engine = EngineProcess(process, reader, writer)
    yield engine
    await engine.stop()


async def test_it_is_raised_behind_a_goodbye(redis: Redis, engine: EngineProcess) -> None:
    core = BrokenCore("node-0", "e-1", "cpu", EngineOptions())
    stopping = asyncio.create_task(asyncio.Event().wait())
    epoch = asyncio.create_task(
        Epoch(redis, core, engine, GivenImages("node-0", "e-1", ""), EngineOptions(step_timeout_s=60.0)).run(stopping)
    )

    async def beats() -> bool:
        return await redis.exists(streams.KV) == 1

    await until(beats)  # and so reads its inbox
    queue = VirtualQueue(node="node-0", epoch="e-1", groups=[])
    await redis.xadd(streams.node_inbox("node-0"), {FIELD: encode(queue)})
    with pytest.raises(ZeroDivisionError, match="at VirtualQueue"):
        await epoch
    stopping.cancel()
    for stream in (streams.SCHEDULER, streams.KV):
        entries: Any = await redis.xrevrange(stream, count=1)
        assert decode_entry(entries[0][1]) == NodeGone(node="node-0", epoch="e-1")
