"""Batches of both interfaces in a cluster whose parts are killed one by one: each request has one answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types.messages import MessageBatch
from openai import AsyncOpenAI
from openai.types import Batch

from tests.e2e.cluster import WAIT_S, Cluster
from tests.e2e.traffic import openai_client

NUM_REQUESTS, NUM_TOKENS = 60, 30
NUM_MESSAGES = 10
POLL_S = 0.05


async def until(client: AsyncOpenAI, batch: Batch, num_answers: int) -> Batch:
    """The batch when it has so many answers, or has ended."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await client.batches.retrieve(batch.id)
            num_done = found.request_counts.completed if found.request_counts else 0
            if num_done >= num_answers or found.status in ("completed", "failed", "expired", "cancelled"):
                return found
            await asyncio.sleep(POLL_S)


async def messages_asked(client: AsyncAnthropic) -> MessageBatch:
    """A batch of requests of Anthropic's API."""
    question: Any = [{"role": "user", "content": "hello"}]
    params: Any = {"model": "chat", "messages": question, "max_tokens": NUM_TOKENS}
    return await client.messages.batches.create(
        requests=[{"custom_id": f"m{number}", "params": params} for number in range(NUM_MESSAGES)]
    )


async def messages_answered(client: AsyncAnthropic, batch: MessageBatch) -> dict[str, str]:
    """Kinds of all results, by the names of their requests, once the batch has ended."""
    async with asyncio.timeout(WAIT_S):
        while (await client.messages.batches.retrieve(batch.id)).processing_status != "ended":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
    results = [one async for one in await client.messages.batches.results(batch.id)]
    assert len(results) == NUM_MESSAGES
    return {one.custom_id: one.result.type for one in results}


async def test_each_request_has_one_answer_whoever_dies(tmp_path: Path) -> None:
    cluster = Cluster.predicted(tmp_path, batches={"enabled": True, "max_inflight": 8})
    lines = [
        {
            "custom_id": f"r{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "chat", "prompt": f"{number}", "max_tokens": NUM_TOKENS, "ignore_eos": True},
        }
        for number in range(NUM_REQUESTS)
    ]
    with cluster.running():
        async with (
            openai_client(cluster) as client,
            AsyncAnthropic(base_url=cluster.url, api_key="none") as anthropic,
        ):
            data = "".join(json.dumps(line) + "\n" for line in lines).encode()
            file = await client.files.create(file=("in.jsonl", data), purpose="batch")
            made = await client.batches.create(
                input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
            )
            messages = await messages_asked(anthropic)
            for number, victim in enumerate(("batches", "gateway", "queue-manager"), 1):
                found = await until(client, made, number * NUM_REQUESTS // 5)
                assert found.status == "in_progress", "it is killed while it works"
                await asyncio.to_thread(cluster.kill, victim)
                await asyncio.to_thread(cluster.up)
            done = await until(client, made, NUM_REQUESTS + 1)

            kinds = await messages_answered(anthropic, messages)
            assert kinds == {f"m{number}": "succeeded" for number in range(NUM_MESSAGES)}
            assert done.status == "completed"
            assert done.error_file_id is None
            assert done.output_file_id is not None
            answers = [json.loads(line) for line in (await client.files.content(done.output_file_id)).text.splitlines()]
        cluster.wait_idle()
    assert sorted(answer["custom_id"] for answer in answers) == sorted(f"r{number}" for number in range(NUM_REQUESTS))
    assert {answer["response"]["body"]["usage"]["completion_tokens"] for answer in answers} == {NUM_TOKENS}
    assert done.usage is not None
    assert done.usage.output_tokens == NUM_REQUESTS * NUM_TOKENS
