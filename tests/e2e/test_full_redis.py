"""Clients fill Redis with long prompts and leave: all is free within seconds. A full disk is waited for."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from redis import Redis
from redis.exceptions import OutOfMemoryError

from tests.e2e.cluster import WAIT_S, Cluster, wait_for
from tests.e2e.traffic import Answer, Ask, openai_client, stream, underway
from tests.gateway.tiny import write_model
from tests.redis.own_server import OwnServer
from tests.redis.waiting import until

RECOVERY_S = 30.0
PROMPT = "ä " * 7_000  # 21,000 tokens: a payload of 35 kB
NUM_CLIENTS = 200
SPARE_BYTES = 4 << 20  # beyond what an idle cluster takes
NUM_STREAMS = 2


def long_context(folder: Path, **config: Any) -> Cluster:
    """A predicted cluster for long prompts: each takes seconds, so that the others lie in Redis meanwhile."""
    source = str(write_model(folder / "long.gguf", context_length=32_768))
    models = [{"name": "chat", "source": source, "max_model_len": 32_768, "predict_as": "mistral-7b"}]
    return Cluster.predicted(folder, models=models, **config)


def fill(redis: Redis) -> None:
    """Until it takes nothing more that asks for memory."""
    for size in (10_000, 10):
        number = 0
        try:
            while True:
                redis.set(f"ballast:{size}:{number}", "x" * size)
                number += 1
        except OutOfMemoryError:
            continue


def refusals(clients: list[asyncio.Task[None]]) -> list[openai.RateLimitError]:
    """Of those clients that got no answer so far, each because of a limit; a slow machine answers some meanwhile."""
    errors = [error for client in clients if client.done() and (error := client.exception()) is not None]
    assert all(isinstance(error, openai.RateLimitError) for error in errors), errors
    return [error for error in errors if isinstance(error, openai.RateLimitError)]


async def test_what_clients_filled_is_free_when_they_have_left(tmp_path: Path) -> None:
    cluster = long_context(tmp_path)
    with cluster.running(), cluster.redis() as redis:
        async with openai_client(cluster) as client:
            running = [Answer() for _ in range(NUM_STREAMS)]
            streams = [asyncio.create_task(stream(client, Ask("chat", "he", 10_000), answer)) for answer in running]
            await underway(running, streams)
            redis.config_set("maxmemory", redis.info("memory")["used_memory"] + SPARE_BYTES)

            waiting: list[asyncio.Task[None]] = []

            async def is_answered_or_waits() -> bool:
                num_held = await asyncio.to_thread(cluster.metric, "gateway", "treadle_inflight_requests")
                return waiting[-1].done() or num_held == len(streams) + sum(not one.done() for one in waiting)

            while not (refused := refusals(waiting)):
                assert len(waiting) < NUM_CLIENTS, "Redis never was full"
                waiting.append(asyncio.create_task(stream(client, Ask("chat", PROMPT, 4), Answer())))
                await until(is_answered_or_waits)
            assert {error.code for error in refused} == {"no_memory"}
            assert int(refused[0].response.headers["Retry-After"]) >= 1
            fill(redis)

            cluster.kill("queue-manager")  # and who takes over finds it full
            before = [answer.num_chunks for answer in running]
            await asyncio.to_thread(cluster.up)

            async def go_on() -> bool:
                return min(answer.num_chunks for answer in running) > max(before) + 10

            await until(go_on, WAIT_S)

            for task in [*streams, *waiting]:
                task.cancel()
            await asyncio.gather(*streams, *waiting, return_exceptions=True)
        left_s = time.monotonic()
        await asyncio.to_thread(cluster.wait_idle, RECOVERY_S)

        async with AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=5) as client:
            answer = await client.completions.create(model="chat", prompt="he", max_tokens=4)
            assert answer.choices[0].finish_reason

        assert time.monotonic() - left_s < RECOVERY_S
        assert cluster.missing() == []


@pytest.mark.redis
async def test_streams_wait_for_a_full_disk_and_lose_no_token(tmp_path: Path) -> None:
    """And no node begins a new epoch: nothing was lost, so nothing is computed again."""
    server = OwnServer(tmp_path, "--appendfsync", "everysec")
    await server.start()
    try:
        cluster = Cluster.predicted(tmp_path)
        cluster.environment["TREADLE_REDIS_URL"] = server.url
        with cluster.running():
            async with openai_client(cluster) as client:
                epoch = cluster.status("node-0")["epoch"]
                asks = [Ask("chat", prompt, 1_000) for prompt in ("he", "hello")]
                answers = [Answer() for _ in asks]
                tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(asks, answers, strict=True)]
                await underway(answers, tasks)
                server.limit_files(1)
                await told(cluster, 1.0)
                num_chunks = [answer.num_chunks for answer in answers]
                with pytest.raises(openai.InternalServerError, match="the queue cannot be reached"):
                    await client.completions.create(model="chat", prompt="he", max_tokens=4)
                assert cluster.get("gateway", "/readyz")[0] == 503
                server.limit_files(resource.RLIM_INFINITY)
                await asyncio.gather(*tasks)
                assert [(answer.num_tokens, answer.finish_reason) for answer in answers] == [(1_000, "length")] * 2
                assert [answer.num_chunks for answer in answers] > num_chunks
                await told(cluster, 0.0)
            assert cluster.status("node-0")["epoch"] == epoch
            assert cluster.missing() == []
    finally:
        server.kill()


async def told(cluster: Cluster, value: float) -> None:
    """Until the gateway's metric says whether the log can be written."""

    def is_told() -> bool:
        return cluster.metric("gateway", "treadle_redis_disk_failing", operation="log") == value

    condition: Callable[[], bool] = is_told
    await asyncio.to_thread(wait_for, f"a disk that fails: {value}", condition)
