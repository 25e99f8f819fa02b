"""Documents scored on the CPU device, as documents a second, with a query in common and with one for each.

    python benchmarks/rerank.py [--points 8x64,32x64] [--query 64] [--rounds 2] [--step-tokens 256] [--json]

A point is so many documents of so many tokens, asked for together behind a query (and instruction) of ``--query``
tokens. ``cached`` is the share of all prompts' tokens that lay in the prefix cache. Medians over the rounds; nothing
has been seen before its round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import closing

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload, Sampling

POINTS = "8x64,32x64"
KV_BYTES = 1 << 30
MAX_NUM_SEQS = 32
VOCABULARY = 49_152
ONE, EACH = "one query", "a query each"
SPEC = ModelSpec(name="judge", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256, max_model_len=1024, task="score")


class Judge:
    """The engine on the CPU device."""

    def __init__(self, executor: CpuExecutor, options: EngineOptions) -> None:
        self._engine = Engine(executor, options)
        self._engine.load_model(SPEC)
        self._numbers = random.Random(time.time_ns())

    def text(self, num_tokens: int) -> list[int]:
        """Token ids that have not been seen before."""
        return [self._numbers.randrange(VOCABULARY) for _ in range(num_tokens)]

    def measured(self, prompts: Sequence[Sequence[int]]) -> tuple[float, float]:
        """Seconds until all are scored, and the share of their tokens that was cached."""
        sampling = Sampling(max_tokens=1, temperature=0.0, is_embedding=True)
        before, started_s = self._engine.counts.prefix_cached_tokens, time.perf_counter()
        for number, prompt in enumerate(prompts):
            assert self._engine.add(Payload(str(number), 0, "bench", SPEC.name, list(prompt), sampling)) == []
        num_scored = 0
        while self._engine.has_work:
            num_scored += sum(len(chunk.embedding) == 8 for chunk in self._engine.step(time.monotonic()))
        assert num_scored == len(prompts), "two logits each"
        taken_s = time.perf_counter() - started_s
        num_cached = self._engine.counts.prefix_cached_tokens - before
        return taken_s, num_cached / sum(map(len, prompts))


def main() -> None:
    """Measure, and say the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default=POINTS)
    parser.add_argument("--query", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step-tokens", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    options = EngineOptions(max_num_seqs=MAX_NUM_SEQS, kv_cache_bytes=KV_BYTES, step_tokens=arguments.step_tokens)
    with closing(CpuExecutor(options, num_threads=arguments.threads)) as executor:
        judge = Judge(executor, options)
        judge.measured([judge.text(8)])
        for point in arguments.points.split(","):
            num_documents, num_tokens = map(int, point.split("x"))
            found: dict[str, list[tuple[float, float]]] = {ONE: [], EACH: []}
            for _ in range(arguments.rounds):
                one = judge.text(arguments.query)
                for way, measured in found.items():
                    queries = [one if way == ONE else judge.text(arguments.query) for _ in range(num_documents)]
                    measured.append(judge.measured([[*query, *judge.text(num_tokens)] for query in queries]))
            for way, measured in found.items():
                seconds = statistics.median(taken_s for taken_s, _ in measured)
                cached = statistics.median(share for _, share in measured)
                line = {
                    "point": point,
                    "queries": way,
                    "query_tokens": arguments.query,
                    "documents_per_s": num_documents / seconds,
                    "cached_share": cached,
                }
                if arguments.json:
                    print(json.dumps(line))
                else:
                    print(f"{point}, {way}: {num_documents / seconds:.2f} documents/s, {cached:.0%} cached")


if __name__ == "__main__":
    main()
