"""A node whose engine dies while it loads a model says so, and starts another one later; it is no secret of its log."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import pytest
import yaml
from redis.asyncio import Redis

from gpu_node.agent.process.agent import Agent
from shared.bus import streams
from shared.config.config import CONFIG_ENV
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec
from shared.messages.codec import FIELD, encode
from shared.messages.nodes.nodes import Load
from tests.redis.waiting import until

SPARSE_BYTES = 4 << 30  # the engine reads them for seconds, to make sure that they are what they should be
WAIT_S = 60.0  # an engine takes some seconds to start


async def test_its_reason_is_told_until_a_model_is_loaded(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "large.gguf"
    with model.open("wb") as file:
        file.truncate(SPARSE_BYTES)
    digest = hashlib.sha256(b"another file").hexdigest()
    config = {"models": [{"name": "m", "source": str(model), "sha256": digest}], "nodes": [{"name": "n0"}]}
    path = tmp_path / "treadle.yaml"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv(CONFIG_ENV, str(path))
    agent, stop = Agent(redis, NodeSpec(name="n0"), EngineOptions(), base_url=""), asyncio.Event()
    life = asyncio.create_task(agent.run(stop))

    async def is_up() -> bool:
        return agent.core is not None and await redis.exists(streams.SCHEDULER) == 1

    async def loads() -> bool:
        assert agent.core is not None
        return agent.core.models.loading == "m"

    async def has_said_why() -> bool:
        return agent.failure != ""

    await until(is_up, WAIT_S)
    assert agent.core is not None
    load = Load(node="n0", epoch=agent.core.epoch, model="m")
    await redis.xadd(streams.node_inbox("n0"), {FIELD: encode(load)})
    await until(loads, WAIT_S)
    pid = agent.status()["engine_pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    await until(has_said_why, WAIT_S)
    why = "model 'm' was not loaded: the engine ended with status -9; the log says more; status -9 means that the "
    assert agent.not_ready == agent.status()["failed"] == why + "machine ran out of memory"
    stop.set()
    await life
