"""A pool of nodes that comes when it is asked for, outlives the scheduler, and goes when nobody asks any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, wait_for

DOWN_COOLDOWN_S = 20.0
GONE_S = 90.0
"""The cooldown, up to the next question for sizes, and the node's leaving; and a busy machine is slow."""


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    cluster = Cluster.predicted(
        tmp_path,
        nodes=[],
        pools=[{"name": "spare", "max_nodes": 2, "start_s": 5, "executor": "predicted", "device": "a10"}],
        scaling={"provider": "process", "up_cooldown_s": 1, "down_cooldown_s": DOWN_COOLDOWN_S},
    )
    try:
        yield cluster
    finally:
        cluster.down()
        assert cluster.members() == []


def pool(cluster: Cluster) -> dict[str, Any]:
    state: dict[str, Any] = cluster.status("scheduler").get("pools", {}).get("spare", {})
    return state


def agents(cluster: Cluster) -> dict[str, int]:
    """Pids of the pool's nodes, by name."""
    found = {}
    for process in cluster.members():
        try:
            environment, command = process.environ(), process.cmdline()
        except psutil.NoSuchProcess:
            continue  # it ended since it was listed
        if "TREADLE_NODE" in environment and "gpu_node.agent" in command:
            assert environment["TREADLE_NODE"] not in found, "no node runs twice"
            found[environment["TREADLE_NODE"]] = process.pid
    return found


@pytest.mark.timeout(400)
async def test_a_pool_comes_from_nothing_for_a_request_and_goes_again(cluster: Cluster) -> None:
    cluster.up()
    assert agents(cluster) == {}
    async with AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.completions.create(model="chat", prompt="he hello", max_tokens=8, seed=1)
        assert answer.usage is not None
        assert 1 <= answer.usage.completion_tokens <= 8
        before = agents(cluster)
        assert list(before) == ["spare-0"]

        cluster.kill("scheduler")
        cluster.up()
        await asyncio.to_thread(wait_for, "the scheduler knows its pool", lambda: pool(cluster).get("num_nodes") == 1)
        again = await client.completions.create(model="chat", prompt="he hello", max_tokens=8, seed=1)
        assert again.choices[0].text == answer.choices[0].text
        assert agents(cluster) == before, "the node was neither stopped nor started again"
    assert [
        row for row in cluster.treadle("status").stdout.splitlines() if row.startswith("spare-0") and "ready" in row
    ]

    def is_over() -> bool:
        """No node runs, and none will: one that a slow machine has taken for dead is started again first."""
        return agents(cluster) == {} and (pool(cluster)["num_nodes"], pool(cluster)["wanted"]) == (0, 0)

    await asyncio.to_thread(wait_for, "nobody asks, nobody runs", is_over, GONE_S)
    assert pool(cluster)["error"] == ""
    assert cluster.metric("scheduler", "treadle_pool_errors_total") == 0
