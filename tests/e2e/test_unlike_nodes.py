"""Nodes whose KV means nothing to each other: requests that leave one go on at the other with their tokens alone."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Answer, Ask, openai_client, stream, underway
from tests.e2e.wide_model import write_wide_model

TOKENS = "treadle_node_output_tokens_total"
NUM_TOKENS = 900  # more than a second of work, also on a quick machine
NUM_KV_HEADS = 4
ASKS = [Ask("small", prompt, NUM_TOKENS) for prompt in PROMPTS[:3]]


async def test_no_token_is_drawn_a_second_time_at_a_node_of_another_kind(tmp_path: Path) -> None:
    source = str(write_wide_model(tmp_path / "small.gguf", NUM_KV_HEADS))
    cluster = Cluster.create(
        tmp_path,
        models=[{"name": "small", "source": source, "max_model_len": 1536}],
        nodes=[{"name": "fast"}, {"name": "slow", "executor": "reference"}],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 128 << 20},
    )
    with cluster.running():
        answers = [Answer() for _ in ASKS]
        async with openai_client(cluster) as client, asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
            await underway(answers, streams)
            leaving, staying = sorted(cluster.nodes, key=lambda name: -cluster.status(name)["num_running"])
            num_there = cluster.metric(leaving, TOKENS)  # published, so that the clients have them, or will
            os.kill(cluster.pids()[leaving], signal.SIGTERM)
        assert [answer.num_tokens for answer in answers] == [NUM_TOKENS] * len(ASKS)
        assert num_there > 0
        made = cluster.metric(staying, TOKENS)
        assert made <= len(ASKS) * NUM_TOKENS - num_there, "it goes on behind what the clients have"
        assert "not used: its blocks are" in cluster.logs()[f"{staying}.log"]
