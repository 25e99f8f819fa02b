"""Redis's master is killed under a whole cluster, and sentinels have a replica take over: every stream goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Ask, Load, complete, openai_client
from tests.redis.replicated import NUM_SENTINELS, Replicated

MAX_TOKENS = 400  # some 10 s of an A10: far from done when the master dies
RETURN_S = 30.0


async def test_streams_survive_a_fail_over_of_redis(tmp_path: Path) -> None:
    servers = Replicated(tmp_path)
    try:
        await servers.start(NUM_SENTINELS)
        cluster = Cluster.predicted(tmp_path, redis_url=servers.sentinel_url, durability={"replicas": 1})
        with cluster.running():
            await check_streams(cluster, servers)
    finally:
        servers.stop()


async def check_streams(cluster: Cluster, servers: Replicated) -> None:
    load = Load(running=[Ask("chat", prompt, MAX_TOKENS) for prompt in PROMPTS], queued=[])
    async with openai_client(cluster) as client:
        answers = await complete(client, load.running)
        undisturbed = {ask.prompt: answer.text for ask, answer in zip(load.running, answers, strict=True)}

        async def die() -> None:
            servers.master.kill()

        load.check(await load.disturbed(client, cluster, die), undisturbed)
        assert await servers.replica.says(role="master")
        (again,) = await complete(client, [Ask("chat", PROMPTS[0], 8)])
        assert again.num_tokens == 8
    # as an operator sees it, by the same address
    status = await asyncio.to_thread(cluster.treadle, "status")
    assert status.returncode == 0, status.stdout + status.stderr
    unreplicated = cluster.metric("queue-manager", "treadle_unreplicated_writes_total")
    assert unreplicated > 0, "nobody replicates the new master yet"
    await asyncio.to_thread(
        wait_for, "nothing in flight", lambda: cluster.status("queue-manager").get("num_requests") == 0, RETURN_S
    )
