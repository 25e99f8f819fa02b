"""The next turn of a conversation comes to another node, which reads there what the first one has computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import openai_client

pytestmark = pytest.mark.usefixtures("model_file")

BLOCK_TOKENS = 16
NUM_TOKENS = 12
PROMPT = [17 + 31 * number % 4001 for number in range(40 * BLOCK_TOKENS)]
"""Whole blocks but for the last one, whose last token is always computed."""

FOUND = 39 * BLOCK_TOKENS
LONG = 600
"""Tokens of an answer that keeps the first node's one place while the second turn comes."""


@contextmanager
def started(folder: Path, names: tuple[str, ...] = ("node-0", "node-1"), **queue: Any) -> Iterator[Cluster]:
    """Nodes with a place each."""
    model = {"name": "smol", "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 2048}
    cluster = Cluster.create(
        folder,
        models=[model],
        nodes=[{"name": name} for name in names],
        engine={"max_num_seqs": 1, "kv_cache_bytes": 128 << 20},
        **({"queue": {"operations": queue}} if queue else {}),
    )
    with cluster.running():
        yield cluster


async def ask(client: AsyncOpenAI, tokens: list[int], num_tokens: int = NUM_TOKENS) -> tuple[str, Any, int]:
    """Text, logprobs, and how much of the prompt was cached."""
    answer = await client.completions.create(
        model="smol",
        prompt=tokens,
        max_tokens=num_tokens,
        temperature=0,
        logprobs=2,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    choice = answer.choices[0]
    assert choice.logprobs is not None
    return choice.text, choice.logprobs.model_dump(), (details.cached_tokens or 0) if details else 0


def fetches(cluster: Cluster, node: str, result: str = "fetched") -> float:
    return cluster.metric(node, "treadle_node_prefix_fetches_total", result=result)


def warm_node(cluster: Cluster) -> str:
    """The node that has the prompt, once the KV manager knows."""

    def found() -> str:
        blocks = cluster.status("kv-manager").get("cached_blocks", {})
        return next((name for name, number in blocks.items() if number >= FOUND // BLOCK_TOKENS), "")

    return wait_for("an index of the prompt's blocks", found)


def is_busy(cluster: Cluster, node: str) -> None:
    wait_for(f"a request at {node}", lambda: cluster.status(node).get("num_running") == 1, 60.0)


async def test_the_other_node_computes_the_rest_alone(tmp_path: Path) -> None:
    with started(tmp_path) as cluster:
        async with openai_client(cluster) as client:
            first = await ask(client, PROMPT)
            warm = await asyncio.to_thread(warm_node, cluster)
            cold = next(name for name in cluster.nodes if name != warm)
            keeping = asyncio.create_task(ask(client, PROMPT, LONG))
            await asyncio.to_thread(is_busy, cluster, warm)
            second = await ask(client, PROMPT)
            keeping.cancel()
        assert first[2] == 0
        print(
            json.dumps([first[0], second[0], second[2]]),
            warm,
            {n: cluster.get(n, "/metrics")[1].count("x") for n in cluster.nodes},
        )
        for n in cluster.nodes:
            print(n, [l for l in cluster.get(n, "/metrics")[1].splitlines() if "prefix" in l and not l.startswith("#")])
        print(cluster.log_tails())
        assert second == (first[0], first[1], FOUND)
        assert fetches(cluster, cold) == 1
