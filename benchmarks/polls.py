"""What polls cost a decode step on the CPU device when nothing waits (Weaver, ATC'25, §4.1).

One executor, whose program has a poll behind each operator, does the same step over and over: by turns its polls look
at a link through which nobody asks for anything, and at nothing. Prints one JSON line: processor time of a step
(medians), the median of what a step takes more than the plain one of the same round, and the same of a second plain
one: what the measurement itself is worth.

Where other work runs beside it, that is far more than the polls. So a poll is also measured where it is a larger part:
in programs of many tiny operators, with polls and without, the least of many tries; ``poll_ns``, and what all polls of
a step come to by it.

    python benchmarks/polls.py --rows 1 --context 128 --steps 400 --threads 1
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import ExitStack, closing
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.optimize import optimize
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuLinkReceiver,
    CpuLinkSender,
    CpuLinkShape,
    CpuProgram,
    CpuRows,
    CpuStep,
    Limits,
    Type,
)
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.requests.payload import Sampling

WARM_UP_STEPS = 10
NUM_TINY = 2_000


SIZES = LinkSizes(1, 16, 1, 1, 2, num_slots=2, max_rows=1, max_sequences=1, max_blocks=1)
"""Of any model."""


def link_shape() -> CpuLinkShape:
    """The same, for the kernels."""
    return CpuLinkShape(*astuple(SIZES))


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
    """Processor time of one step, all threads together: what others do on the machine counts for less."""
    started = time.process_time()
    executor.submit(plan).result()
    return time.process_time() - started


def excess_percent(times: dict[str, list[float]], name: str) -> float:
    """Median over the rounds of what ``name`` takes more than ``plain`` in the same round."""
    ratios = [ours / plain for ours, plain in zip(times[name], times["plain"], strict=True)]
    return round(100 * (statistics.median(ratios) - 1), 3)


def tiny_operators_s(num_threads: int, num_tries: int) -> tuple[float, float]:
    """Least wall time of a program of `NUM_TINY` additions of one row without polls, and with a poll behind each."""
    one, zero = np.ones(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    none = np.empty(0, dtype=np.int32)
    step = CpuStep(
        starts=zero,
        num_rows=one,
        num_blocks=one,
        block_tables=zero,
        token_ids=one,
        draw_rows=none,
        copies=none.reshape(-1, 2),
        logits=None,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        device = stack.enter_context(CpuDevice(num_threads))
        shape = CpuCacheShape(1, 1, 16, 1, 2)
        arena, host = CpuArena(1, shape.block_bytes), CpuArena(1, 0)
        stack.enter_context(closing(CpuLinkSender(link_shape(), "a", "b", deadline_s=1.0, folder=folder)))
        link = CpuLinkReceiver(link_shape(), "a", "b", device=device, arena=arena, folder=folder)
        stack.enter_context(closing(link))
        programs = [tiny_program(shape, arena, host, polled=polled) for polled in (False, True)]
        least = [float("inf")] * 2
        for _ in range(num_tries):
            for number, program in enumerate(programs):
                started = time.perf_counter()
                device.wait(device.submit(program, step))
                least[number] = min(least[number], time.perf_counter() - started)
        for program in programs:
            program.close()
    for memory in (arena, host):
        memory.close()
    return least[0], least[1]


def tiny_program(shape: CpuCacheShape, arena: CpuArena, host: CpuArena, *, polled: bool) -> CpuProgram:
    """Additions of one row to another, over and over."""
    program = CpuProgram(Limits(1, 1, 16, 16), shape, 1, arena=arena, host=host)
    one, other = (program.buffer(CpuRows.TOKENS, Type.FLOAT32, 16) for _ in range(2))
    for _ in range(NUM_TINY):
        program.add("add", one, other, other)
        if polled:
            program.add("poll")
    return program


def num_operators(spec: ModelSpec) -> int:
    """Of the program that the device runs: so many polls stand in a step."""
    return len(optimize(build_program(open_checkpoint(checked_path(spec)).config)).operators)


def main() -> None:
    """Interleave the turns, so that what else the machine does meets all of them alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    options = EngineOptions(kv_cache_bytes=256 << 20)
    spec = ClusterConfig().models[0]
    folder = Path(mkdtemp())
    executor = CpuExecutor(options, arguments.threads, passes=(insert_polls,), link_folder=folder)
    executor.load_model(spec)
    plan = decode_step(arguments.rows, arguments.context, options.block_size)
    times: dict[str, list[float]] = {name: [] for name in ("plain", "polled", "again")}
    for number in range(WARM_UP_STEPS + arguments.steps):
        order = list(times)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            with ExitStack() as stack:
                if name == "polled":
                    stack.enter_context(closing(CpuLinkSender(link_shape(), "a", "b", deadline_s=1.0, folder=folder)))
                    link = LinkName("a", "b")
                    executor.links.receive(link, SIZES)
                    stack.callback(executor.links.close_link, link)
                seconds = step_s(executor, plan)
            if number >= WARM_UP_STEPS:
                times[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    without_s, with_s = tiny_operators_s(arguments.threads, arguments.steps)
    poll_s = (with_s - without_s) / NUM_TINY
    num_polls = num_operators(spec)
    line = {
        "rows": arguments.rows,
        "context": arguments.context,
        "threads": arguments.threads,
        "steps": arguments.steps,
        **{f"{name}_ms": round(seconds * 1e3, 4) for name, seconds in medians.items()},
        "polls_percent": excess_percent(times, "polled"),
        "noise_percent": excess_percent(times, "again"),
        "tiny_operator_ns": round(without_s / NUM_TINY * 1e9, 2),
        "poll_ns": round(poll_s * 1e9, 2),
        "polls": num_polls,
        "polls_percent_by_poll_ns": round(100 * num_polls * poll_s / medians["plain"], 4),
        "load": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
