"""What polls cost a decode step on the CPU device when nothing waits (Weaver, ATC'25, §4.1).

Two executors with the same model take turns at the same steps, one of them with a poll behind each operator and a
counter that never moves. Prints one JSON line: seconds of a step (medians) with and without, their difference, and how
far two executors without polls differ from one another: what the measurement itself is worth.

    python benchmarks/polls.py --rows 1 --context 128 --steps 400 --threads 1
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from ctypes import c_uint64

from gpu_node.engine.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.executors.cpu import CpuExecutor
from gpu_node.graph.passes.polls import insert_polls
from shared.config import ClusterConfig, EngineOptions, ModelSpec
from shared.messages import Sampling

WARM_UP_STEPS = 10


def never() -> None:
    """Nothing waits, so nobody calls this."""
    raise AssertionError("a poll found something")


def decode_step(num_rows: int, context_tokens: int, block_size: int) -> StepPlan:
    """A step of decodes, each over ``context_tokens`` tokens of blocks that hold zeros."""
    num_blocks = -(-context_tokens // block_size)
    sampling = Sampling(max_tokens=8, temperature=0.0)
    return StepPlan(
        tuple(
            ScheduledSequence(
                sequence_id=row,
                token_ids=(1_000 + row,),
                start=context_tokens - 1,
                block_table=tuple(range(row * num_blocks, (row + 1) * num_blocks)),
                draws=(Draw(row, sampling, 0),),
            )
            for row in range(num_rows)
        )
    )


def step_s(executor: CpuExecutor, plan: StepPlan) -> float:
    """Wall time of one step."""
    started = time.perf_counter()
    executor.submit(plan).result()
    return time.perf_counter() - started


def load(spec: ModelSpec, options: EngineOptions, num_threads: int, *, polled: bool) -> CpuExecutor:
    """An executor with the model, with polls or without."""
    executor = CpuExecutor(options, num_threads, passes=(insert_polls,) if polled else ())
    executor.load_model(spec)
    if polled:
        executor.set_poll(never, c_uint64(0))
    return executor


def main() -> None:
    """Interleave the three, so that what else the machine does meets all of them alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    options = EngineOptions(kv_cache_bytes=256 << 20)
    spec = ClusterConfig().models[0]
    executors = {
        name: load(spec, options, arguments.threads, polled=name == "polled") for name in ("plain", "polled", "again")
    }
    plan = decode_step(arguments.rows, arguments.context, options.block_size)
    times: dict[str, list[float]] = {name: [] for name in executors}
    for number in range(WARM_UP_STEPS + arguments.steps):
        for name, executor in executors.items():
            seconds = step_s(executor, plan)
            if number >= WARM_UP_STEPS:
                times[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    line = {
        "rows": arguments.rows,
        "context": arguments.context,
        "threads": arguments.threads,
        "steps": arguments.steps,
        **{f"{name}_ms": round(seconds * 1e3, 4) for name, seconds in medians.items()},
        "polls_percent": round(100 * (medians["polled"] / medians["plain"] - 1), 3),
        "noise_percent": round(100 * (medians["again"] / medians["plain"] - 1), 3),
        "load": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
