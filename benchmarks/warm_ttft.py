"""What asking the KV manager adds to the time to first token: two equal clusters, of which one asks.

Each has two predicted nodes on this machine, with gateway, Redis and services as always; both are asked prompts that no
node has, one at a time, in turn. Prints one JSON object: medians of both, and of their difference, pair by pair.

    python benchmarks/warm_ttft.py --pairs 100
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import yaml
from ttft_overhead import FIRST_TOKEN, LAST_TOKEN, cluster_ttft_s

from cli.cluster.processes.ports import free_port
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE

WARM_UP = 5
HOST = "127.0.0.1"
ADMIN_PORTS = {"blind": 23_100, "asking": 23_200}
MODEL = "chat"


@contextmanager
def cluster(name: str, folder: Path) -> Iterator[str]:
    """A running cluster; its address."""
    port = free_port(HOST)
    path = folder / f"{name}.yaml"
    model = {"name": MODEL, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "predict_as": "smollm2-135m"}
    config = {
        "models": [model | {"max_model_len": 8192}],
        "nodes": [{"name": f"node-{number}", "executor": "predicted", "device": "a10"} for number in range(2)],
        "gateway": {"host": HOST, "port": port},
        "admin_port": ADMIN_PORTS[name],
        "data_dir": str(folder / name),
        "queue": {"operations": {"warm": name == "asking"}},
    }
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "cli"]
    subprocess.run([*command, "up", "-f", str(path)], check=True, stdout=subprocess.DEVNULL)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        subprocess.run([*command, "down", "-f", str(path)], check=True, stdout=subprocess.DEVNULL)


async def measure(urls: dict[str, str], num_pairs: int, prompt_tokens: int) -> dict[str, object]:
    """Interleaved pairs; the order within a pair alternates."""
    chance = random.Random(0)
    ttfts_s: dict[str, list[float]] = {name: [] for name in urls}
    async with aiohttp.ClientSession() as session:
        for number in range(WARM_UP + num_pairs):
            prompt = [chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(prompt_tokens)]
            for name in list(urls) if number % 2 else reversed(urls):
                ttft_s = await cluster_ttft_s(session, urls[name], MODEL, prompt)
                if number >= WARM_UP:
                    ttfts_s[name].append(ttft_s)
            sys.stderr.write(f"\r{number + 1}/{WARM_UP + num_pairs} pairs")
    sys.stderr.write("\n")
    added_s = [one - other for one, other in zip(ttfts_s["asking"], ttfts_s["blind"], strict=True)]
    return {
        "pairs": num_pairs,
        "prompt_tokens": prompt_tokens,
        **{f"{name}_ttft_ms": round(statistics.median(one) * 1e3, 2) for name, one in ttfts_s.items()},
        "added_ms_p50": round(statistics.median(added_s) * 1e3, 2),
        "added_ms_p90": round(statistics.quantiles(added_s, n=10)[8] * 1e3, 2),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        urls = {name: running.enter_context(cluster(name, Path(folder))) for name in ADMIN_PORTS}
        print(json.dumps(asyncio.run(measure(urls, options.pairs, options.prompt_tokens))))


if __name__ == "__main__":
    main()
