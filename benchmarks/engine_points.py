"""Output tokens per second of one engine, without HTTP, at points of (requests x prompt x output tokens).

Prints one JSON line for what the machine can do (bytes read and bfloat16 multiplications a second with the same number
of threads), then one line a point: the best possible time by these two rates, and the share of it that was reached.
Prompts are random, greedy, of equal length, and all there from the start: `engine_vs_vllm.py` asks vLLM the same.

    python benchmarks/engine_points.py --points 1x32x128,8x128x128 --threads 2 --executor cpu
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable

import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu import CpuExecutor
from gpu_node.executors.executor import Executor
from gpu_node.executors.reference import ReferenceExecutor
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import ModelConfig
from shared.config import ClusterConfig, EngineOptions
from shared.messages import Payload, Sampling
from shared.model_file import checked_path

FIRST_TOKEN, LAST_TOKEN = 1_000, 40_000  # ordinary text tokens of the vocabulary
READ_BYTES = 256 << 20  # far more than any cache holds
NUM_TRIES = 5
WEIGHT_BYTES = {"bfloat16": 2, "int8": 1}


def best_rate(work: Callable[[], object], amount: float) -> float:
    """Amount per second of the fastest try: what the machine can do when nobody else is on it."""
    seconds = []
    for _ in range(NUM_TRIES):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return amount / min(seconds)


def read_bytes_per_s(num_threads: int) -> float:
    """Memory read end to end, each thread its own part."""
    memory = torch.ones(READ_BYTES // 4)
    parts = memory.chunk(num_threads)

    def read() -> None:
        threads = [threading.Thread(target=part.max) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    torch.set_num_threads(1)
    return best_rate(read, READ_BYTES)


def multiplications_per_s(num_threads: int) -> float:
    """Multiply-adds of a bfloat16 matrix product by torch (oneDNN)."""
    size = 1536
    torch.set_num_threads(num_threads)
    a, b = torch.ones(2, size, size, dtype=torch.bfloat16)
    return best_rate(lambda: a @ b, size**3)


def num_multiplications(config: ModelConfig) -> tuple[int, int]:
    """Multiply-adds of one token in all layers, and in the head."""
    attention = config.hidden_size * 2 * (config.q_size + config.kv_size)
    layer = attention + 3 * config.hidden_size * config.intermediate_size
    return config.num_layers * layer, config.hidden_size * config.vocab_size


def roofline_s(
    config: ModelConfig, point: tuple[int, int, int], rates: tuple[float, float], weight_bytes: int
) -> float:
    """Least time of a point: prompts at the speed of multiplication, each decode step at that of the slower of both.

    Attention is left out: it is a few percent at these lengths.
    """
    num_requests, num_in, num_out = point
    bytes_per_s, macs_per_s = rates
    layers, head = num_multiplications(config)
    weights_s = weight_bytes * (layers + head) / bytes_per_s
    prefill_s = max(weights_s, num_requests * (num_in * layers + head) / macs_per_s)
    step_s = max(weights_s, num_requests * (layers + head) / macs_per_s)
    return prefill_s + (num_out - 1) * step_s


def measure(engine: Engine, point: tuple[int, int, int], numbers: random.Random) -> float:
    """Seconds from the first request's arrival to the last token."""
    num_requests, num_in, num_out = point
    assert engine.model is not None
    sampling = Sampling(max_tokens=num_out, temperature=0.0, ignore_eos=True)
    started = time.perf_counter()
    for number in range(num_requests):
        prompt = [numbers.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(num_in)]
        refused = engine.add(Payload(str(number), 0, "group", engine.model.name, prompt, sampling))
        assert refused is None, refused
    while engine.has_work:
        engine.step(time.monotonic())
    return time.perf_counter() - started


def make_executor(arguments: argparse.Namespace, options: EngineOptions) -> Executor:
    """The executor to be measured."""
    if arguments.executor == "cpu":
        return CpuExecutor(options, arguments.threads, level=arguments.level, fuse=not arguments.plain)
    torch.set_num_threads(arguments.threads)
    return ReferenceExecutor(options)


def main() -> None:
    """Measure the machine, then each point, the median of some repetitions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="1x32x128,8x128x128,64x256x128,128x512x64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--executor", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--level", default="", help="plain, avx2, avx512 or amx; empty for the best")
    parser.add_argument("--plain", action="store_true", help="do not join operators")
    parser.add_argument("--weights", choices=("bfloat16", "int8"), default="bfloat16")
    parser.add_argument("--step-tokens", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    points: list[tuple[int, int, int]] = []
    for text in arguments.points.split(","):
        num_requests, num_in, num_out = map(int, text.split("x"))
        points.append((num_requests, num_in, num_out))
    options = EngineOptions(
        kv_cache_bytes=4 << 30, max_num_seqs=max(point[0] for point in points), step_tokens=arguments.step_tokens
    )
    spec = ClusterConfig().models[0].model_copy(update={"weights": arguments.weights})
    config = open_checkpoint(checked_path(spec)).config
    rates = read_bytes_per_s(arguments.threads), multiplications_per_s(arguments.threads)
    machine = {"read_gb_s": round(rates[0] / 1e9, 1), "bf16_gmac_s": round(rates[1] / 1e9, 1)}
    print(json.dumps({**machine, "threads": arguments.threads, "load": round(os.getloadavg()[0], 2)}), flush=True)
    engine = Engine(make_executor(arguments, options), options)
    engine.load_model(spec)
    numbers = random.Random(0)
    measure(engine, (2, 8, 4), numbers)
    for point in points:
        seconds = statistics.median(measure(engine, point, numbers) for _ in range(arguments.repeat))
        line = {
            "executor": arguments.executor,
            "weights": arguments.weights,
            "point": "x".join(map(str, point)),
            "seconds": round(seconds, 3),
            "tok_s": round(point[0] * point[2] / seconds, 1),
            "roofline_share": round(roofline_s(config, point, rates, WEIGHT_BYTES[arguments.weights]) / seconds, 3),
            "load": round(os.getloadavg()[0], 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
