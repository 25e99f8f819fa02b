"""Redis comes back without the end of its log, cut at any command or in the middle of one, under traffic.

No request is lost and none goes on for nobody: each ends once, with its tokens, and gateway, queue manager and nodes
agree again. `TREADLE_TRUNCATIONS` sets how often that happens in all.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.redis.lost_tail_cluster import Cluster

NUM_CLUSTERS = 4  # side by side: most of the time is waiting for processes to notice
NUM_TRUNCATIONS = int(os.environ.get("TREADLE_TRUNCATIONS", "40"))
NUM_ANSWERS = 4  # between two losses: whoever asks gets on
TRAFFIC_S = 0.1


async def test_no_orphan_and_no_zombie_after_losses_at_any_command(tmp_path: Path) -> None:
    clusters = [Cluster(tmp_path / str(seed), seed) for seed in range(NUM_CLUSTERS)]
    for number in range(NUM_CLUSTERS):
        (tmp_path / str(number)).mkdir()
    async with asyncio.TaskGroup() as lives:
        tasks = [lives.create_task(live(cluster, NUM_TRUNCATIONS // NUM_CLUSTERS)) for cluster in clusters]
    assert sum(task.result() for task in tasks) > NUM_TRUNCATIONS, "something was lost"
    assert all(cluster.num_answers > 0 for cluster in clusters)
    assert any(cluster.num_cancelled > 0 for cluster in clusters)


async def live(cluster: Cluster, num_truncations: int) -> int:
    """Lose the end of the log so often; answers how many commands were lost in all."""
    num_lost = 0
    async with cluster.running():
        for _ in range(num_truncations):
            await cluster.answers(NUM_ANSWERS)
            await cluster.evict_somebody()
            await asyncio.sleep(cluster.chance.random() * TRAFFIC_S)
            num_lost += await cluster.lose_tail()
            try:
                await cluster.agree()
            except TimeoutError:
                pytest.fail(cluster.difference())
    return num_lost
