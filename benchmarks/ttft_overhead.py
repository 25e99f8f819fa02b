"""What the way through gateway, Redis, queue manager and agent adds to the time to first token.

Asks a running cluster and an engine process of its own the same prompts in turn, one at a time, and prints one JSON
object: medians of both and of their difference, pair by pair. The engine alone is spoken to as a node agent does.

    python benchmarks/ttft_overhead.py --url http://127.0.0.1:8080 --pairs 50
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp

from gpu_node.agent.process.engine_command import engine_command
from gpu_node.agent.process.engine_process import EngineProcess
from gpu_node.engine.process.protocol.protocol import LoadModel, ModelFailed, ModelLoaded, RunAttempt, StepReport
from shared.config.config import load_config
from shared.messages.requests.payload import Payload, Sampling

WARM_UP = 5
FIRST_TOKEN, LAST_TOKEN = 1_000, 40_000  # ordinary text tokens of the vocabulary


async def engine_ttft_s(engine: EngineProcess, payload: Payload) -> float:
    """From the command to the first token."""
    started = time.perf_counter()
    await engine.send(RunAttempt(payload))
    while True:
        for event in await engine.events():
            if isinstance(event, StepReport) and event.chunks:
                return time.perf_counter() - started


async def cluster_ttft_s(session: aiohttp.ClientSession, url: str, model: str, prompt: list[int]) -> float:
    """From the request to the first event with a choice, over HTTP."""
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True, "ignore_eos": True}
    started = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {"):
                ttft_s = time.perf_counter() - started
                await response.read()
                return ttft_s
    raise RuntimeError("the stream ended without a token")


async def start_engine(node: str, model: str) -> EngineProcess:
    """An engine with the model loaded."""
    engine = await EngineProcess.start(engine_command(load_config().node(node)))
    await engine.send(LoadModel(model))
    while True:
        for event in await engine.events():
            if isinstance(event, ModelFailed):
                raise RuntimeError(event.error)
            if isinstance(event, ModelLoaded):
                return engine


async def measure(url: str, model: str, node: str, num_pairs: int, prompt_tokens: int) -> dict[str, object]:
    """Interleaved pairs; the order within a pair alternates."""
    rng = random.Random()  # other prompts each time: the cluster remembers the prefixes of those it has seen
    engine = await start_engine(node, model)
    direct, through = [], []
    async with aiohttp.ClientSession() as session:
        for number in range(WARM_UP + num_pairs):
            prompt = [rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(prompt_tokens)]
            sampling = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
            payload = Payload(
                request_id=f"r{number}",
                attempt=0,
                gateway="bench",
                model=model,
                prompt_token_ids=prompt,
                sampling=sampling,
            )
            calls: list[Callable[[], Awaitable[float]]] = [
                partial(engine_ttft_s, engine, payload),
                partial(cluster_ttft_s, session, url, model, prompt),
            ]
            order = (0, 1) if number % 2 else (1, 0)
            times = {place: await calls[place]() for place in order}
            if number >= WARM_UP:
                direct.append(times[0])
                through.append(times[1])
            sys.stderr.write(f"\r{number + 1}/{WARM_UP + num_pairs} pairs")
    await engine.stop()
    sys.stderr.write("\n")
    added = [through_s - direct_s for through_s, direct_s in zip(through, direct, strict=True)]
    return {
        "pairs": num_pairs,
        "prompt_tokens": prompt_tokens,
        "engine_ttft_ms": round(statistics.median(direct) * 1e3, 2),
        "cluster_ttft_ms": round(statistics.median(through) * 1e3, 2),
        "added_ms_p50": round(statistics.median(added) * 1e3, 2),
        "added_ms_p90": round(statistics.quantiles(added, n=10)[8] * 1e3, 2),
    }


def main() -> None:
    """Parse, measure, print."""
    config = load_config()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=f"http://{config.gateway.host}:{config.gateway.port}")
    parser.add_argument("--model", default=config.models[0].name)
    parser.add_argument("--node", default=config.nodes[0].name)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    options = parser.parse_args()
    result = measure(options.url, options.model, options.node, options.pairs, options.prompt_tokens)
    print(json.dumps(asyncio.run(result)))


if __name__ == "__main__":
    main()
