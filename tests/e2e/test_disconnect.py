"""A client that leaves takes everything of its request with it: the work, the memory, the keys."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, openai_client

LONG = 1800  # tokens; nobody waits for them


async def test_a_client_that_leaves_in_mid_stream_frees_everything(cluster: Cluster) -> None:
    before = cluster.output_tokens()
    async with openai_client(cluster) as client:
        for model in cluster.models:
            stream = await client.completions.create(
                model=model, prompt=PROMPTS[0], max_tokens=LONG, stream=True, extra_body={"ignore_eos": True}
            )
            async with stream:
                async for chunk in stream:
                    if chunk.choices[0].text:
                        break
            await asyncio.to_thread(cluster.wait_idle)
    assert cluster.output_tokens() - before < LONG, "the node went on to the end for nobody"


async def test_clients_that_leave_while_they_run_and_while_they_wait(client: AsyncOpenAI, cluster: Cluster) -> None:
    """Requests that are not streamed: three run, four wait behind them, all clients leave."""
    before = cluster.output_tokens()
    node = cluster.nodes[0]
    model = cluster.status(node)["model"]

    async def ask(number: int) -> None:
        await client.completions.create(
            model=model, prompt=f"{number}. {PROMPTS[0]}", max_tokens=LONG, extra_body={"ignore_eos": True}
        )

    tasks = [asyncio.create_task(ask(number)) for number in range(7)]
    manager = "queue-manager"
    await asyncio.to_thread(wait_for, "7 requests", lambda: cluster.status(manager).get("num_requests") == 7)
    await asyncio.to_thread(wait_for, "a full node", lambda: cluster.status(node)["num_running"] == 3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(cluster.wait_idle)
    assert cluster.output_tokens() - before < 3 * LONG
