"""What a batch does to requests in a hurry, and what it gets: as a batch, and sent by a script that cannot say so.

A cluster of predicted A10s in real time (Mistral 7B), with gateway, Redis and services as always. Requests come by
chance (Poisson) with a promise for the first token; rounds of the same arrivals take turns:

- ``alone``: nothing else is there;
- ``batch``: a batch of ``/v1/batches`` runs beside them (window 24 h);
- ``client``: a script sends the same lines, as many at a time as the batch service, with the default promise;
- ``idle``: the batch runs, and no requests come: what it could get at most.

Prints one JSON object: time to first token (p50, p99) and share of promises kept of the requests, output tokens a
second of both, medians of the rounds; ``filled_share``: tokens of both together over those of ``idle``.

    python benchmarks/batches.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from cli.cluster.processes.ports import free_port
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE

HOST, MODEL, ADMIN_PORT = "127.0.0.1", "chat", 23_300
ARMS = ("alone", "batch", "client", "idle")
MAX_INFLIGHT = 128
PROMPT_TOKENS, OUTPUT_TOKENS = 200, 100
FIRST_TOKEN, LAST_TOKEN = 1_000, 40_000
SETTLE_S = 6.0  # of a phase, in which batches begin and queues fill, and nothing is counted
POLL_S = 0.25


@contextmanager
def cluster(folder: Path, num_nodes: int) -> Iterator[str]:
    """A running cluster; its address."""
    port, path = free_port(HOST), folder / "cluster.yaml"
    model = {"name": MODEL, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "predict_as": "mistral-7b"}
    config = {
        "models": [model | {"max_model_len": 4096}],
        "nodes": [{"name": f"node-{number}", "executor": "predicted", "device": "a10"} for number in range(num_nodes)],
        "gateway": {"host": HOST, "port": port},
        "batches": {"enabled": True, "max_inflight": MAX_INFLIGHT},
        "admin_port": ADMIN_PORT,
        "data_dir": str(folder / "data"),
    }
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "cli"]
    subprocess.run([*command, "up", "-f", str(path)], check=True, stdout=subprocess.DEVNULL)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        subprocess.run([*command, "down", "-f", str(path)], check=True, stdout=subprocess.DEVNULL)


def body(chance: random.Random) -> dict[str, Any]:
    """Of a request with a prompt that no cache has."""
    prompt = [chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(PROMPT_TOKENS)]
    return {"model": MODEL, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}


class Counter:
    """Output tokens of answers that ended while it counts."""

    def __init__(self) -> None:
        self.is_counting = False
        self.num_tokens = 0

    def add(self, num_tokens: int) -> None:
        """An answer has ended."""
        self.num_tokens += num_tokens * self.is_counting


async def hurried(http: aiohttp.ClientSession, asked: dict[str, Any], ttft_s: list[float], done: Counter) -> None:
    """One request with a promise; a request that fails is one that never began."""
    began_s, first_s = time.monotonic(), float("inf")
    try:
        async with http.post("/v1/completions", json=asked | {"stream": True}) as response:
            async for line in response.content:
                if line.startswith(b"data: {") and b'"text":"' in line and first_s == float("inf"):
                    first_s = time.monotonic() - began_s
    except aiohttp.ClientError:
        first_s = float("inf")
    if done.is_counting:
        ttft_s.append(first_s)
        done.add(OUTPUT_TOKENS if first_s < float("inf") else 0)


async def arrivals(
    http: aiohttp.ClientSession, rate: float, seed: int, promise_s: float, ttft_s: list[float], done: Counter
) -> None:
    """Requests by chance, for ever."""
    chance = random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        while True:
            await asyncio.sleep(chance.expovariate(rate))
            asked = body(chance) | {"slo": {"ttft_s": promise_s}}
            tasks.create_task(hurried(http, asked, ttft_s, done))


async def as_client(http: aiohttp.ClientSession, seed: int, done: Counter) -> None:
    """The lines of a batch, so many at a time, for ever."""
    chance = random.Random(seed)

    async def one_after_the_other() -> None:
        while True:
            async with http.post("/v1/completions", json=body(chance)) as response:
                await response.read()
                if response.status == 200:
                    done.add(OUTPUT_TOKENS)
                else:
                    await asyncio.sleep(float(response.headers.get("Retry-After", 1)))

    await asyncio.gather(*(one_after_the_other() for _ in range(MAX_INFLIGHT)))


async def as_batch(http: aiohttp.ClientSession, seed: int, num_lines: int, done: Counter) -> None:
    """A batch of so many lines, counted as its answers come; cancelled when this is."""
    chance = random.Random(seed)
    lines = [
        {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body(chance)}
        for number in range(num_lines)
    ]
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    form.add_field("file", "".join(json.dumps(line) + "\n" for line in lines), filename="lines.jsonl")
    file = await (await http.post("/v1/files", data=form)).json()
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch = await (await http.post("/v1/batches", json=asked)).json()
    try:
        num_before = 0
        while True:
            await asyncio.sleep(POLL_S)
            found = await (await http.get(f"/v1/batches/{batch['id']}")).json()
            num_now = found["request_counts"]["completed"]
            done.add((num_now - num_before) * OUTPUT_TOKENS)
            num_before = num_now
            if found["status"] in ("completed", "failed", "expired"):
                raise RuntimeError(f"the batch is {found['status']} before its phase is over: more lines are needed")
    finally:
        await (await http.post(f"/v1/batches/{batch['id']}/cancel")).read()


async def phase(http: aiohttp.ClientSession, arm: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """One arm, measured once; behind it the cluster is idle again."""
    ttft_s: list[float] = []
    mine, theirs = Counter(), Counter()
    works = []
    if arm != "idle":
        works.append(arrivals(http, options.rate, seed, options.promise_s, ttft_s, mine))
    if arm in ("batch", "idle"):
        works.append(as_batch(http, seed + 1, options.lines, theirs))
    if arm == "client":
        works.append(as_client(http, seed + 1, theirs))
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.wait(tasks, timeout=SETTLE_S, return_when=asyncio.FIRST_EXCEPTION)
    mine.is_counting = theirs.is_counting = True
    await asyncio.wait(tasks, timeout=options.seconds, return_when=asyncio.FIRST_EXCEPTION)
    mine.is_counting = theirs.is_counting = False
    failed = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in failed:
        task.result()
    await idle(http)
    found = {
        "request_tokens_per_s": mine.num_tokens / options.seconds,
        "batch_tokens_per_s": theirs.num_tokens / options.seconds,
    }
    if ttft_s:
        cuts = statistics.quantiles(ttft_s, n=100)
        kept = sum(one <= options.promise_s for one in ttft_s) / len(ttft_s)
        found |= {"requests": len(ttft_s), "ttft_p50_s": cuts[49], "ttft_p99_s": cuts[98], "kept_share": kept}
    return found


async def idle(http: aiohttp.ClientSession) -> None:
    """Until nothing waits or runs."""
    while (await (await http.get("/v1/queue")).json())["data"]:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def measure(url: str, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """All arms, by turns."""
    runs: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as http:
        await phase(http, "batch", options.seed, argparse.Namespace(**vars(options) | {"seconds": 5.0}))  # learns
        for number in range(options.rounds):
            for arm in ARMS[number % 2 :] + ARMS[: number % 2]:
                found = await phase(http, arm, options.seed + 10 * number, options)
                runs[arm].append(found)
                say(f"{number} {arm}: {found}")
    medians = {
        arm: {name: round(statistics.median(run[name] for run in made), 4) for name in made[0]}
        for arm, made in runs.items()
    }
    most = medians["idle"]["batch_tokens_per_s"]
    for arm in ("batch", "client"):
        both = medians[arm]["request_tokens_per_s"] + medians[arm]["batch_tokens_per_s"]
        medians[arm]["filled_share"] = round(both / most, 3)
    return {"options": vars(options), "max_inflight": MAX_INFLIGHT, "medians": medians, "runs": runs}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=6.0, help="requests a second that are in a hurry")
    parser.add_argument("--promise-s", type=float, default=1.0, help="their time to the first token")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a phase")
    parser.add_argument("--lines", type=int, default=2_000, help="of a batch: more than a phase can answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="only the result, on one line")
    options = parser.parse_args()

    def say(text: str) -> None:
        if not options.json:
            sys.stderr.write(f"{text}\n")

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), options.nodes) as url:
        print(json.dumps(asyncio.run(measure(url, options, say))))


if __name__ == "__main__":
    main()
