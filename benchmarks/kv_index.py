"""The KV manager's index at size: memory a block, and the time of a look-up and of a node's message.

Eight nodes share the blocks; each look-up asks for a prompt whose 32 names one node has all of, and another half of.

    python benchmarks/kv_index.py --blocks 10000000
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time

from services.kv_manager.index import BlockIndex
from shared.messages.memory.blocks import MAX_NAMES_TOLD, BlockNews
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.prefixes.prefixes import MAX_NAMES

NUM_NODES = 8
NUM_LOOKUPS = 2_000
SHOW_EVERY = 64  # messages


def measure(num_blocks: int) -> dict[str, object]:
    """Told as nodes tell it, in whole messages; then asked."""
    chance = random.Random(0)
    index, news_s = BlockIndex(), list[float]()
    whole: list[tuple[int, list[int]]] = []
    num_messages = -(-num_blocks // MAX_NAMES_TOLD)
    for message in range(num_messages):
        names = [chance.randrange(1, 2**63) for _ in range(MAX_NAMES_TOLD)]
        node = message % NUM_NODES
        news = BlockNews(
            node=f"n{node}",
            epoch="1",
            number=message // NUM_NODES + 1,
            model="m",
            is_new=message < NUM_NODES,
            tiers=[TierNews(int(Tier.HOST), names)],
        )
        started = time.perf_counter()
        index.hear(news)
        news_s.append(time.perf_counter() - started)
        if len(whole) < NUM_LOOKUPS:
            whole.append((node, names[:MAX_NAMES]))
        if message % SHOW_EVERY == 0:
            sys.stderr.write(f"\r{message}/{num_messages} messages")
    sys.stderr.write("\n")
    lookups_s = []
    for number in range(NUM_LOOKUPS):
        node, names = whole[number % len(whole)]
        other = index._nodes[f"n{(node + 1) % NUM_NODES}"].tables["m"]
        for name in names[: MAX_NAMES // 2]:
            other.add(name, Tier.DEVICE)
        started = time.perf_counter()
        found = index.find("m", names)
        lookups_s.append(time.perf_counter() - started)
        assert sorted(one.num_names for one in found) == [MAX_NAMES // 2, MAX_NAMES]
    return {
        "blocks": index.num_blocks,
        "nodes": NUM_NODES,
        "bytes_per_block": round(index.num_bytes / index.num_blocks, 1),
        "lookup_us_p50": round(statistics.median(lookups_s) * 1e6, 1),
        "lookup_us_p99": round(statistics.quantiles(lookups_s, n=100)[98] * 1e6, 1),
        "news_ms_p50": round(statistics.median(news_s) * 1e3, 2),
        "news_ms_max": round(max(news_s) * 1e3, 2),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10_000_000)
    print(json.dumps(measure(parser.parse_args().blocks)))


if __name__ == "__main__":
    main()
