"""How long another process's attention takes through a link, beside the same attention at home (Weaver, ATC'25, §4.1).

Two processes, a device of one thread each, on CPUs of their own. The sender asks for single rows of SmolLM2's shape
over a context; the receiver has nothing to do, or steps of its own, or sleeps when it is asked. Prints one JSON line:

- ``round_trip_s``: medians of a send, the wait and a gather, by rows and by what the receiver does; ``asleep`` is one
  task behind a pause;
- ``home_s``: the median of the same rows' attention on the sender's device, with keys and values written;
- ``idle_poll_cost``: what a poll costs a device of tiny operators, ns: with no link, and with one that nobody uses (the
  least of many tries).

    python benchmarks/offload_round_trip.py --rows 1 4 8 --context 512 --tasks 2000 --cpus 0 1
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch

from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuLinkReceiver,
    CpuLinkSender,
    CpuLinkShape,
    CpuProgram,
    CpuRemote,
    CpuRemotes,
    CpuRows,
    CpuStep,
    Limits,
    Type,
)

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16
MAX_ROWS, MAX_TOKENS = 64, 4096
NUM_BLOCKS = MAX_ROWS * MAX_TOKENS // BLOCK_SIZE // 16
SENDER, RECEIVER = "bench-hot", "bench-cold"
DEADLINE_S = 5.0
PAUSE_S = 0.05
NUM_PAUSES = 40
NUM_TINY = 2_000
WARM_UP = 50


class Place:
    """A device with a program of one layer: attention at home, or rows sent and gathered."""

    def __init__(self, stack: ExitStack, cpu: int) -> None:
        self.device = stack.enter_context(CpuDevice(1, (cpu,)))
        self.cache = CpuCacheShape(1, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
        self.arena = stack.enter_context(closing(CpuArena(1, NUM_BLOCKS * self.cache.block_bytes)))
        self.host = stack.enter_context(closing(CpuArena(1, 0)))
        self._stack = stack

    def program(self) -> CpuProgram:
        """Empty."""
        limits = Limits(MAX_ROWS, 1, MAX_TOKENS, 16)
        made = CpuProgram(limits, self.cache, HEADS // KV_HEADS, arena=self.arena, host=self.host)
        return self._stack.enter_context(closing(made))

    def attention(self, *, is_remote: bool) -> CpuProgram:
        """Of rows of random numbers."""
        program = self.program()
        columns = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM)
        q, k, v = (program.buffer(CpuRows.TOKENS, Type.FLOAT32, number) for number in columns)
        for view in (q, k, v):
            values = torch.from_numpy(program.buffer_values(view, CpuRows.TOKENS))
            values.normal_(generator=torch.Generator().manual_seed(0))
        out = program.buffer(CpuRows.TOKENS, Type.FLOAT32, columns[0])
        if is_remote:
            program.add("send", q, k, v, 0, 0)
            program.add("gather", out)
        else:
            program.add("write_kv", k, v, 0)
            program.add("attention", q, 0, 0, out)
        return program

    def tiny(self) -> CpuProgram:
        """Polled additions of one row to another."""
        program = self.program()
        one, other = (program.buffer(CpuRows.TOKENS, Type.FLOAT32, 16) for _ in range(2))
        for _ in range(NUM_TINY):
            program.add("add", one, other, other)
            program.add("poll")
        return program

    def seconds(self, program: CpuProgram, step: CpuStep) -> float:
        """That a step takes."""
        event = self.device.submit(program, step)
        self.device.wait(event)
        return self.device.times(event).run_s


def step(num_rows: int, context_tokens: int, remotes: Sequence[CpuRemote] = ()) -> CpuStep:
    """Single rows, each over ``context_tokens`` tokens of blocks of its own."""
    num_blocks = -(-context_tokens // BLOCK_SIZE)
    none = np.empty(0, dtype=np.int32)

    def all_rows(value: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.full(num_rows, value, dtype=np.int32)

    return CpuStep(
        starts=all_rows(context_tokens - 1),
        num_rows=all_rows(1),
        num_blocks=all_rows(num_blocks),
        block_tables=np.arange(num_rows * num_blocks, dtype=np.int32),
        token_ids=all_rows(1),
        draw_rows=none,
        copies=none.reshape(-1, 2),
        logits=None,
        remotes=CpuRemotes.of(remotes),
    )


def link_shape() -> CpuLinkShape:
    """Of SmolLM2's attention, one layer of it."""
    return CpuLinkShape(1, BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM, 2, MAX_ROWS, MAX_ROWS, NUM_BLOCKS)


def receive(folder: Path, cpu: int) -> None:
    """The other process: idle, or busy, as lines of its input say."""
    with ExitStack() as stack:
        place = Place(stack, cpu)
        tiny, own = place.tiny(), step(1, 1)
        without_s = min(place.seconds(tiny, own) for _ in range(NUM_PAUSES))
        receiver = CpuLinkReceiver(
            link_shape(), SENDER, RECEIVER, device=place.device, arena=place.arena, folder=folder
        )
        link = stack.enter_context(closing(receiver))
        link.lend([0])
        with_s = min(place.seconds(tiny, own) for _ in range(NUM_PAUSES))
        costs = {"no_link": without_s / NUM_TINY * 1e9, "a_link": with_s / NUM_TINY * 1e9}
        print(json.dumps({name: round(cost, 2) for name, cost in costs.items()}), flush=True)
        is_busy = False
        while True:
            if is_busy and not select.select([sys.stdin], [], [], 0.0)[0]:
                place.seconds(tiny, own)
                continue
            line = sys.stdin.readline()
            if not line:
                return
            is_busy = line == "busy\n"
            print("ready", flush=True)


def main() -> None:
    """The sender's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--cpus", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--receive", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.receive is not None:
        receive(arguments.receive, arguments.cpus[1])
        return
    with ExitStack() as stack:
        print(json.dumps(measured(stack, arguments)))


def measured(stack: ExitStack, arguments: argparse.Namespace) -> dict[str, object]:
    """All of it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
    place = Place(stack, arguments.cpus[0])
    home, away = place.attention(is_remote=False), place.attention(is_remote=True)
    link = CpuLinkSender(link_shape(), SENDER, RECEIVER, deadline_s=DEADLINE_S, folder=folder)
    stack.enter_context(closing(link))
    cpus = [str(cpu) for cpu in arguments.cpus]
    command = [sys.executable, __file__, "--receive", str(folder), "--cpus", *cpus]
    other = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert other.stdin is not None
    assert other.stdout is not None
    poll_ns = json.loads(other.stdout.readline())

    def asked(num_rows: int) -> float:
        there = step(num_rows, arguments.context, [CpuRemote(link, link.generation, num_rows)])
        seconds = place.seconds(away, there)
        assert not there.remotes.lost.any()
        return seconds

    found: dict[str, dict[str, float]] = {"home": {}, "idle": {}, "busy": {}, "asleep": {}}
    for does in ("idle", "busy"):
        other.stdin.write(does + "\n")
        other.stdin.flush()
        assert other.stdout.readline() == "ready\n"
        for num_rows in arguments.rows:
            times = [asked(num_rows) for _ in range(WARM_UP + arguments.tasks)][WARM_UP:]
            found[does][str(num_rows)] = round(statistics.median(times), 8)
    other.stdin.write("idle\n")
    other.stdin.flush()
    assert other.stdout.readline() == "ready\n"
    for num_rows in arguments.rows:
        own = step(num_rows, arguments.context)
        times = [place.seconds(home, own) for _ in range(WARM_UP + arguments.tasks)][WARM_UP:]
        found["home"][str(num_rows)] = round(statistics.median(times), 8)
        waking = []
        for _ in range(NUM_PAUSES):
            time.sleep(PAUSE_S)
            waking.append(asked(num_rows))
        found["asleep"][str(num_rows)] = round(statistics.median(waking), 8)
    other.stdin.close()
    return {
        "context": arguments.context,
        "tasks": arguments.tasks,
        "home_s": found.pop("home"),
        "round_trip_s": found,
        "idle_poll_cost": {**poll_ns, "poll_of_a_link": round(poll_ns["a_link"] - poll_ns["no_link"], 2)},
        "load": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    main()
