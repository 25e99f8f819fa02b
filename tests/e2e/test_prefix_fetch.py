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
PROMPT, OTHER = ([start + 31 * number % 4001 for number in range(40 * BLOCK_TOKENS)] for start in (17, 19))
"""Whole blocks; the last token of the last one is always computed."""

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


async def keep_busy(cluster: Cluster, client: AsyncOpenAI, node: str, tokens: list[int]) -> asyncio.Task[Answer]:
    """Someone goes on with a prompt where it is, for long."""
    keeping = asyncio.create_task(ask(client, tokens, LONG))
    await asyncio.to_thread(wait_for, f"a request at {node}", lambda: cluster.status(node).get("num_running"), BUSY_S)
    return keeping


def num_indexed(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = cluster.status("kv-manager").get("cached_blocks", {})
    return found


def num_fetches(cluster: Cluster, node: str, *results: str) -> float:
    return sum(cluster.metric(node, "treadle_node_prefix_fetches_total", result=result) for result in results)


def has_pulled(cluster: Cluster, node: str) -> bool:
    groups = cluster.status("queue-manager").get("groups", [])
    return any(group["node"] == node and group["num_running"] for group in groups)


async def test_the_other_node_computes_the_rest_alone_and_all_of_it_where_the_first_one_dies(tmp_path: Path) -> None:
    with started(tmp_path) as cluster:
        async with openai_client(cluster) as client:
            first, warm, cold = await ask_first(cluster, client, PROMPT)
            keeping = await keep_busy(cluster, client, warm, PROMPT)
            second = await ask(client, PROMPT)
            assert second == (first[0], first[1], FOUND), "the same tokens and logprobs, to the bit"
            assert first[2] == 0
            assert num_fetches(cluster, cold, "fetched") == 1
            assert cluster.metric(cold, "treadle_node_prefix_tokens_total") == FOUND
            assert cluster.metric(warm, "treadle_node_prefix_asks_total", result="given") == 1
            assert not any("door" in cluster.get(name, "/status")[1] for name in ("scheduler", warm)), "it has a secret"
            keeping.cancel()
            await asyncio.to_thread(cluster.wait_idle)

            first, warm, cold = await ask_first(cluster, client, OTHER)
            keeping = await keep_busy(cluster, client, warm, OTHER)
            os.kill(cluster.pids()[warm], signal.SIGSTOP)  # it answers nobody
            coming = asyncio.create_task(ask(client, OTHER))
            await asyncio.to_thread(wait_for, "the pull", lambda: has_pulled(cluster, cold), BUSY_S)
            keeping.cancel()
            await asyncio.to_thread(cluster.kill, warm)
            assert await coming == (first[0], first[1], 0)
            assert num_fetches(cluster, cold, "unreachable", "late") == 1
            assert num_fetches(cluster, cold, "fetched") <= 1
        assert cluster.missing() == [warm]


async def test_the_node_that_prefills_reads_the_next_turn_where_the_last_one_was_decoded(tmp_path: Path) -> None:
    """A short question with a long answer, whose KV only the node has that drew it."""
    with started(tmp_path, phases=("prefill", "decode")) as cluster:
        async with openai_client(cluster) as client:
            question = PROMPT[: 4 * BLOCK_TOKENS]
            answer = await ask(client, question, TOLD)
            assert cluster.metric("decode", "treadle_resumed_requests_total", tier="evicted") == 1, "it has moved"
            whole = (len(question) + TOLD - 1) // BLOCK_TOKENS
            index = "an index of question and answer"
            await asyncio.to_thread(wait_for, index, lambda: num_indexed(cluster).get("decode", 0) >= whole)
            turns = [*question, *await token_ids(cluster, answer[1]["tokens"]), *OTHER[:20]]
            second = await ask(client, turns)
            assert (num_fetches(cluster, "prefill", "fetched"), second[2]) == (1, whole * BLOCK_TOKENS)


async def token_ids(cluster: Cluster, texts: list[str]) -> list[int]:
    """Of tokens as logprobs name them."""
    found = {}
    async with ClientSession(cluster.url, headers={"Authorization": f"Bearer {API_KEY}"}) as session:
        for text in set(texts):
            body = {"model": "smol", "prompt": text, "add_special_tokens": False}
            async with session.post("/tokenize", json=body) as response:
                (found[text],) = (await response.json())["tokens"]
    return [found[text] for text in texts]
