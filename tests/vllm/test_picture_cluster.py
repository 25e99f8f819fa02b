"""A cluster whose only node has vLLM, and a model that reads images: over HTTP, whole, streamed, and after a death."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster
from tests.e2e.traffic import openai_client
from tests.vllm.picture_models import image_file, write_idefics

UP_S = 400
MAX_TOKENS = 24
LONG = 300  # far from done when the engine is killed


@pytest.fixture(scope="module")
def cluster(vllm_python: Path, redis_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Up while the tests of this file run."""
    del redis_program
    eyes = write_idefics(tmp_path_factory.mktemp("models") / "eyes")
    vllm = {"python": str(vllm_python), "args": ["--dtype", "float32"]}
    one = Cluster.create(
        tmp_path_factory.mktemp("cluster"),
        models=[{"name": "eyes", "source": str(eyes), "max_model_len": 512}],
        nodes=[{"name": "node-0", "engine": "vllm", "vllm": vllm}],
        engine={"max_num_seqs": 8, "kv_cache_bytes": 32 << 20, "step_timeout_s": 200},
    )
    try:
        done = one.treadle("up", "--wait-s", str(UP_S))
        assert done.returncode == 0, done.stderr + one.log_tails()
        yield one
    finally:
        one.down()
    assert one.members() == []


def asked(seed: int, max_tokens: int = MAX_TOKENS) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(image_file(seed)).decode()}"
    parts = [{"type": "text", "text": "look: "}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": parts}]
    extra = {"ignore_eos": True}
    return {
        "model": "eyes",
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "logprobs": True,
        "extra_body": extra,
    }


async def whole(client: AsyncOpenAI, seed: int, max_tokens: int = MAX_TOKENS) -> list[str]:
    """Tokens by their texts, which are bytes where they are no characters."""
    answer = await client.chat.completions.create(**asked(seed, max_tokens))
    assert answer.usage.completion_tokens == max_tokens
    assert answer.usage.prompt_tokens > 30  # those of the image
    return [one.token for one in answer.choices[0].logprobs.content]


async def streamed(client: AsyncOpenAI, seed: int, max_tokens: int = MAX_TOKENS) -> AsyncIterator[str]:
    async for chunk in await client.chat.completions.create(**asked(seed, max_tokens), stream=True):
        for choice in chunk.choices:
            for one in choice.logprobs.content if choice.logprobs else []:
                yield one.token


async def all_of(tokens: AsyncIterator[str]) -> list[str]:
    return [token async for token in tokens]


async def test_answers_are_of_the_image_that_was_sent_whole_or_streamed(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        found = await asyncio.gather(*(whole(client, seed) for seed in (1, 2, 3)))
        again = await asyncio.gather(*(all_of(streamed(client, seed)) for seed in (1, 2, 3)))
    assert again == found
    assert len({tuple(one) for one in found}) == 3
    await asyncio.to_thread(cluster.wait_idle)  # nothing of them is left in Redis


async def test_an_answer_goes_on_when_its_engine_dies(cluster: Cluster) -> None:
    """Its image is found again for the next attempt: no token is missing, none comes twice."""
    before = cluster.status("node-0")
    async with openai_client(cluster) as client:
        expected = await whole(client, 4, LONG)
        tokens: list[str] = []
        async for token in streamed(client, 4, LONG):
            tokens.append(token)
            if len(tokens) == 3:
                os.kill(before["engine_pid"], signal.SIGKILL)
    assert tokens == expected
    assert cluster.status("node-0")["epoch"] != before["epoch"]
    await asyncio.to_thread(cluster.wait_idle)


async def test_addresses_are_refused(cluster: Cluster) -> None:
    body = asked(1)
    body["messages"][0]["content"][1]["image_url"]["url"] = "http://127.0.0.1:1/a.png"
    async with openai_client(cluster) as client:
        with pytest.raises(openai.BadRequestError, match="nothing is fetched"):
            await client.chat.completions.create(**body)
