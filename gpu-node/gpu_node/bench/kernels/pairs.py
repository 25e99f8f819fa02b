"""What products keep beside attention, and beside copies in memory, each on a part of the threads (NanoFlow, §4.1.1).

A device whose memory is the host's has no links: a collective there, and a copy of keys and values to the host, is a
copy in memory by one thread. It stands for the lanes *network* and *copy*.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from threading import Event, Thread

import numpy as np

from gpu_node.bench.kernels.executors import TimedExecutor, beside
from gpu_node.bench.kernels.roles import ATTENTION, FEED_FORWARD, KQV, OUTPUT
from gpu_node.engine.border.plan import StepPlan
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.measured.pipeline_profile import Pair

SHAPES = ((32, 128), (64, 128), (64, 384))
"""Rows, and tokens that each of them attends to: how much of a table depends on shapes."""
NUM_STEPS = 8
COPY_BYTES = 64 << 20
"""More than caches hold."""
NUM_COPIES = 8


def measure_pairs(
    options: EngineOptions, spec: ModelSpec, token_bytes: int, cpus: Sequence[int], say: Callable[[str], None]
) -> tuple[list[Pair], float]:
    """All pairs, and bytes a second of a copy alone."""
    found: list[Pair] = []

    def executor(those: Sequence[int], *left_out: str) -> TimedExecutor:
        return TimedExecutor(options, spec, token_bytes, those, left_out)

    say(f"loading {spec.name}")
    products, attention = executor(cpus, ATTENTION), executor(cpus, KQV, OUTPUT, FEED_FORWARD)
    shapes = [(rows, context) for rows, context in SHAPES if rows <= options.step_tokens]
    shapes = sorted({(rows, min(context, products.max_model_len)) for rows, context in shapes})
    for number in range(1, len(cpus)):
        some, others = executor(cpus[number:], ATTENTION), executor(cpus[:number], KQV, OUTPUT, FEED_FORWARD)
        for rows, context in shapes:
            say(f"products beside attention: {rows} rows, {context} tokens each, {number} of {len(cpus)} threads")
            plan = products.decodes(rows, context)
            best_s = median(products.times_s(plan, NUM_STEPS)), median(attention.times_s(plan, NUM_STEPS))
            product_s, other_s = beside(some, plan, others, NUM_STEPS)
            found.append(Pair("memory", rows, context, number, best_s[0] / product_s, best_s[1] / other_s))
        others.close()
        if number == 1:
            for rows, context in shapes[:2]:
                say(f"products beside copies: {rows} rows")
                found.append(_beside_copies(products, some, products.decodes(rows, context), rows))
        some.close()
    for one in (products, attention):
        one.close()
    return found, copy_bytes_per_s()


def copy_bytes_per_s() -> float:
    """Of one thread, nothing beside it."""
    return _Copies().run(NUM_COPIES)


def _beside_copies(products: TimedExecutor, some: TimedExecutor, plan: StepPlan, rows: int) -> Pair:
    best_s, copies = median(products.times_s(plan, NUM_STEPS)), _Copies()
    alone = copies.run(NUM_COPIES)
    ends = Event()
    rates: list[float] = []

    def copy() -> None:
        while not ends.is_set():
            rates.append(copies.run(1))

    thread = Thread(target=copy, daemon=True)
    thread.start()
    try:
        product_s = median(some.times_s(plan, NUM_STEPS))
    finally:
        ends.set()
        thread.join()
    return Pair("network", rows, 0, 1, best_s / product_s, median(rates) / alone)


class _Copies:
    """Copies in memory, without the interpreter's lock."""

    def __init__(self) -> None:
        self._source, self._target = np.ones(COPY_BYTES, dtype=np.uint8), np.ones(COPY_BYTES, dtype=np.uint8)

    def run(self, number: int) -> float:
        """Bytes a second; median."""
        rates = []
        for _ in range(number):
            started_s = time.perf_counter()
            np.copyto(self._target, self._source)
            rates.append(COPY_BYTES / (time.perf_counter() - started_s))
        return median(rates)
