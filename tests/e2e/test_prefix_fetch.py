"""The next turn of a conversation comes to another node, which reads there what the first one has computed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import API_KEY, openai_client

pytestmark = pytest.mark.usefixtures("model_file")

BLOCK_TOKENS = 16
NUM_TOKENS = 12
PROMPTS = [[start + 31 * number % 4001 for number in range(40 * BLOCK_TOKENS)] for start in range(17, 27)]
"""Whole blocks; the last token of the last one is always computed. More than one, since a busy KV manager may answer
too late, and then a request is placed blindly."""

FOUND = 39 * BLOCK_TOKENS
LONG = 900
"""Tokens of an answer that keeps a node's one place until it is given up."""

TOLD = 257
"""Tokens of an answer that is worth to be read elsewhere."""

BUSY_S = 60.0

Answer = tuple[str, Any, int]
"""Text, logprobs, and how much of the prompt was cached."""


@contextmanager
def started(folder: Path, phases: tuple[str, ...] = ()) -> Iterator[Cluster]:
    """Two nodes with a place each; or one for each of ``phases``, called as they are."""
    cluster = Cluster.create(
        folder,
        models=[{"name": "smol", "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 2048}],
        nodes=[{"name": one, "phases": one} for one in phases] or [{"name": name} for name in ("node-0", "node-1")],
        engine={"max_num_seqs": 1, "kv_cache_bytes": 128 << 20},
    )
    with cluster.running():
        yield cluster


async def ask(client: AsyncOpenAI, tokens: list[int], num_tokens: int = NUM_TOKENS) -> Answer:
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


async def ask_first(cluster: Cluster, client: AsyncOpenAI, tokens: list[int]) -> tuple[Answer, str, str]:
    """The answer, the node that has computed it, whose blocks the KV manager knows then, and the other one."""
    before = num_indexed(cluster)
    answer = await ask(client, tokens)

    def told() -> str:
        found = num_indexed(cluster)
        return next((name for name in found if found[name] - before.get(name, 0) >= len(tokens) // BLOCK_TOKENS), "")

    warm = await asyncio.to_thread(wait_for, "an index of the prompt's blocks", told)
    return answer, warm, next(name for name in cluster.nodes if name != warm)


async def begun(
    cluster: Cluster, client: AsyncOpenAI, prompts: Iterator[list[int]]
) -> tuple[list[int], Answer, str, str, asyncio.Task[Answer]]:
    """A prompt with its answer, the node that has its KV and a request with it that takes long, and the other node."""
    for prompt in prompts:
        answer, warm, cold = await ask_first(cluster, client, prompt)
        keeping = asyncio.create_task(ask(client, prompt, LONG))
        await asyncio.to_thread(wait_for, "a request that runs", lambda: any(running(cluster, cluster.nodes)), BUSY_S)
        if running(cluster, [warm]) == [1]:
            return prompt, answer, warm, cold, keeping
        keeping.cancel()
        await asyncio.to_thread(cluster.wait_idle)
    raise AssertionError("the KV manager was never in time")


def running(cluster: Cluster, nodes: list[str]) -> list[int]:
    return [cluster.status(node).get("num_running", 0) for node in nodes]


def num_indexed(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = cluster.status("kv-manager").get("cached_blocks", {})
    return found


def total(cluster: Cluster, metric: str, **labels: str) -> float:
    return sum(cluster.metric(node, metric, **labels) for node in cluster.nodes)


def num_fetches(cluster: Cluster, *results: str) -> float:
    return sum(total(cluster, "treadle_node_prefix_fetches_total", result=result) for result in results)


def has_pulled(cluster: Cluster, node: str) -> bool:
    groups = cluster.status("queue-manager").get("groups", [])
    return any(group["node"] == node and group["num_running"] for group in groups)


async def test_the_other_node_computes_the_rest_alone_and_all_of_it_where_the_first_one_dies(tmp_path: Path) -> None:
    prompts = iter(PROMPTS)
    with started(tmp_path) as cluster:
        async with openai_client(cluster) as client:
            found = 0
            while not found:
                prompt, first, warm, cold, keeping = await begun(cluster, client, prompts)
                text, logprobs, found = await ask(client, prompt)
                assert (text, logprobs) == first[:2], "the same, to the bit"
                keeping.cancel()
                await asyncio.to_thread(cluster.wait_idle)
            assert (first[2], found) == (0, FOUND)
            num_fetched = num_fetches(cluster, "fetched")
            assert num_fetched >= 1
            assert total(cluster, "treadle_node_prefix_tokens_total") == num_fetched * FOUND
            assert total(cluster, "treadle_node_prefix_asks_total", result="given") == num_fetched
            assert not any("door" in cluster.get(name, "/status")[1] for name in ("scheduler", warm)), "it has a secret"

            prompt, first, warm, cold, keeping = await begun(cluster, client, prompts)
            os.kill(cluster.pids()[warm], signal.SIGSTOP)  # it answers nobody
            coming = asyncio.create_task(ask(client, prompt))
            await asyncio.to_thread(wait_for, "the pull", lambda: has_pulled(cluster, cold), BUSY_S)
            keeping.cancel()
            await asyncio.to_thread(cluster.kill, warm)
            assert await coming == (first[0], first[1], 0)
            assert num_fetches(cluster, "unreachable", "late") <= 1, "none, where it was placed blindly"
        assert cluster.missing() == [warm]


async def test_the_node_that_prefills_reads_the_next_turn_where_the_last_one_was_decoded(tmp_path: Path) -> None:
    """A short question with a long answer, whose KV only the node has that drew it."""
    with started(tmp_path, phases=("prefill", "decode")) as cluster:
        async with openai_client(cluster) as client:
            question = PROMPTS[0][: 4 * BLOCK_TOKENS]
            answer = await ask(client, question, TOLD)
            assert cluster.metric("decode", "treadle_resumed_requests_total", tier="evicted") == 1, "it has moved"
            whole = (len(question) + TOLD - 1) // BLOCK_TOKENS
            index = "an index of question and answer"
            await asyncio.to_thread(wait_for, index, lambda: num_indexed(cluster).get("decode", 0) >= whole)
            turns = [*question, *await token_ids(cluster, answer[1]["tokens"]), *PROMPTS[1][:20]]
            second = await ask(client, turns)
            assert (num_fetches(cluster, "fetched"), second[2]) == (1, whole * BLOCK_TOKENS)


async def token_ids(cluster: Cluster, texts: list[str]) -> list[int]:
    """Of tokens as logprobs name them."""
    found = {}
    async with ClientSession(cluster.url, headers={"Authorization": f"Bearer {API_KEY}"}) as session:
        for text in set(texts):
            body = {"model": "smol", "prompt": text, "add_special_tokens": False}
            async with session.post("/tokenize", json=body) as response:
                (found[text],) = (await response.json())["tokens"]
    return [found[text] for text in texts]
