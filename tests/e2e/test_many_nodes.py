"""Twenty nodes on one machine: they predict their steps, and everything else of them is real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster
from tests.gateway.tiny import write_model

DEVICES = ["a100"] * 12 + ["a10"] * 8
MODELS = {"chat": "mistral-7b", "batch": "vicuna-13b"}
NUM_REQUESTS = 24
MAX_TOKENS = 40
MAX_NODE_BYTES = 200 << 20
"""Of an agent and its engine, without what they share with others: no tensors, no torch."""


async def test_twenty_predicted_nodes_start_and_answer(tmp_path: Path) -> None:
    model_file = write_model(tmp_path / "tiny.gguf", context_length=4096)  # a vocabulary, and no weights
    cluster = Cluster.create(
        tmp_path,
        models=[
            {"name": name, "source": str(model_file), "max_model_len": 2048, "predict_as": size}
            for name, size in MODELS.items()
        ],
        nodes=[
            {"name": f"node-{number}", "executor": "predicted", "device": device}
            for number, device in enumerate(DEVICES)
        ],
    )
    with cluster.running():
        async with AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0) as client:

            async def ask(number: int) -> str:
                answer = await client.completions.create(
                    model=list(MODELS)[number % 2], prompt="he hello", max_tokens=MAX_TOKENS, seed=number
                )
                assert answer.usage is not None
                assert 1 <= answer.usage.completion_tokens <= MAX_TOKENS
                return answer.choices[0].text

            answers = await asyncio.gather(*map(ask, range(NUM_REQUESTS)))
            assert await ask(0) == answers[0], "an answer follows from its seed, on whatever node"
        assert all(answer.isascii() and answer.replace(" ", "").isalpha() for answer in answers)
        assert len(set(answers)) == NUM_REQUESTS
        assert sum(process.memory_full_info().uss for process in nodes_of(cluster)) < MAX_NODE_BYTES * len(DEVICES)
        cluster.wait_idle()


def nodes_of(cluster: Cluster) -> list[psutil.Process]:
    """The agents, and the engine of each."""
    agents = [psutil.Process(cluster.pids()[name]) for name in cluster.nodes]
    return [*agents, *(engine for agent in agents for engine in agent.children())]
