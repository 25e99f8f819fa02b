"""Time to first token of prompts that another node has cached, beside new ones as long: read there, or computed.

Two nodes on processors of this machine, with gateway, Redis and services as always. The first one computes some
prompts, and is kept busy then, with one place. What comes goes to the second: by turns a prompt that the first one has,
with some tokens behind it, and a new one. Prints one JSON object, with the machine's load.

    python benchmarks/prefix_fetch.py --pairs 3 --prompt-tokens 1500
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import yaml
from ttft_overhead import FIRST_TOKEN, LAST_TOKEN, cluster_ttft_s

from cli.cluster.processes.ports import free_port
from shared.config.config import ADMIN_SERVICES, SMOLLM2_SHA256, SMOLLM2_SOURCE

HOST = "127.0.0.1"
ADMIN_PORT = 23_300
MODEL = "smol"
MORE_TOKENS = 20
"""Behind a prompt that was asked before."""

KEPT_TOKENS = 6_000
"""Of the answer that keeps the first node busy; it is given up at the end."""

INDEX_S = 1.0
"""Nodes tell what they have four times a second."""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A running cluster; its address."""
    port = free_port(HOST)
    path = folder / "cluster.yaml"
    model = {"name": MODEL, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 8192}
    config = {
        "models": [model],
        "nodes": [{"name": f"node-{number}"} for number in range(2)],
        "engine": {"max_num_seqs": 1, "kv_cache_bytes": 1 << 30},
        "gateway": {"host": HOST, "port": port},
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


def metric(node: int, name: str) -> float:
    """A counter of a node, over all labels."""
    with urlopen(f"http://{HOST}:{ADMIN_PORT + len(ADMIN_SERVICES) + node}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


async def keep_busy(session: aiohttp.ClientSession, url: str, prompt: list[int]) -> None:
    """One answer, for long."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": KEPT_TOKENS, "ignore_eos": True, "stream": True}
    async with session.post(f"{url}/v1/completions", json=body) as response:
        async for _ in response.content:
            pass


async def measure(url: str, num_pairs: int, prompt_tokens: int) -> dict[str, object]:
    """By turns; the first prompt is not measured: it makes both nodes, and the network, known."""
    chance = random.Random(0)

    def prompt(num_tokens: int) -> list[int]:
        return [chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(num_tokens)]

    ttfts_s: dict[str, list[float]] = {"fetched": [], "computed": []}
    asked = [prompt(prompt_tokens) for _ in range(1 + num_pairs)]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        for one in asked:
            await cluster_ttft_s(session, url, MODEL, one)
        await asyncio.sleep(INDEX_S)
        keeping = asyncio.create_task(keep_busy(session, url, asked[-1]))
        await asyncio.sleep(INDEX_S)
        for number, one in enumerate(asked):
            prompts = {"fetched": [*one, *prompt(MORE_TOKENS)], "computed": prompt(prompt_tokens + MORE_TOKENS)}
            for name in list(prompts) if number % 2 else reversed(prompts):
                ttft_s = await cluster_ttft_s(session, url, MODEL, prompts[name])
                if number:
                    ttfts_s[name].append(ttft_s)
        keeping.cancel()
    medians_s = {name: statistics.median(one) for name, one in ttfts_s.items()}
    nodes = range(2)
    return {
        "pairs": num_pairs,
        "prompt_tokens": prompt_tokens,
        **{f"{name}_ttft_s": round(median_s, 3) for name, median_s in medians_s.items()},
        "computed_over_fetched": round(medians_s["computed"] / medians_s["fetched"], 2),
        "prefix_tokens": [metric(node, "treadle_node_prefix_tokens_total") for node in nodes],
        "prefix_bytes": [metric(node, "treadle_node_prefix_bytes_total") for node in nodes],
        "fetch_seconds": [round(metric(node, "treadle_node_prefix_fetch_seconds_sum"), 3) for node in nodes],
        "load_average": os.getloadavg(),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=1500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as url:
        print(json.dumps(asyncio.run(measure(url, options.pairs, options.prompt_tokens))))


if __name__ == "__main__":
    main()
