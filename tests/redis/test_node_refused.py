"""A node whose engine cannot run as it is configured gives up at once, with the engine's reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gpu_node.agent.process.agent import Agent
from gpu_node.agent.process.engine_process import EngineRefusedError
from shared.config.config import CONFIG_ENV
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec


async def test_it_is_not_tried_again(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "treadle.yaml"
    path.write_text("nodes: [{name: node-0, cpus: [1023]}]")
    monkeypatch.setenv(CONFIG_ENV, str(path))
    agent = Agent(redis, NodeSpec(name="node-0"), EngineOptions(), base_url="")
    with pytest.raises(EngineRefusedError, match=r"^node 'node-0': cpus names 1023, but this process may run on"):
        await agent.run(asyncio.Event())
