"""Llama 3 8B under full load, with made-up weights: tokens a second, and what its steps take.

Total throughput is NanoFlow's (OSDI'25, §5): tokens of prompts and of outputs together, in a batch that fills memory.
What a device could do at best is its compute rate over two operations a parameter (§3.4): Compute / (2 P).
"""

from __future__ import annotations

import gc
import random
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from line import Line
from models import CONTEXT, FAMILIES, LLAMA_3_8B, dummy
from speeds import MATRIX_RATE
from step_times import StepTime, TimedExecutor

from gpu_node.engine.engine import Engine
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.hardware import DEVICES
from shared.messages.requests.payload import Payload, Sampling

OPTIMUM_GOAL, IDLE_GOAL = 0.5, 0.03
NUM_WAITING = 64
"""Requests that wait at the least, so that whoever ends is followed by another."""
LEAST_STEPS = 4
"""Of a window."""
GOLDEN_RATIO = (5**0.5 - 1) / 2
ALMOST = 0.9
"""So many of those that will run in the long run do, or as many have begun: then the window begins."""


@dataclass(frozen=True, slots=True)
class Load:
    """A model, and what it is asked."""

    name: str
    config: Mapping[str, Any]
    options: EngineOptions
    num_prompt_tokens: int
    num_output_tokens: int
    window_s: float
    """How long throughput is measured, from when as many requests run as ever will, of all ages."""
    batches: tuple[int, ...]
    """Sequences that decode together, for the time of a step."""
    batch_prompt_tokens: int
    batch_output_tokens: int
    """That they have together, about."""
    dtype: torch.dtype = torch.bfloat16

    def tokens_left(self, number: int, num_running: int) -> int:
        """That a request has still to draw when it begins, of those that fill the device one after another.

        When the last of ``num_running`` has begun, about as many steps later as all of them have rows, what each has
        left then is spread evenly over all that an answer has.
        """
        num_steps = num_running * (self.num_prompt_tokens + self.num_output_tokens // 2) // self.options.step_tokens
        left = self.num_output_tokens - int(number * GOLDEN_RATIO % 1 * self.num_output_tokens)
        left += max(0, num_steps * (num_running - number) // num_running)
        return min(left, self.num_prompt_tokens + self.num_output_tokens - 2)

    def num_running(self, num_kv_tokens: int) -> int:
        """Requests that run in the long run: as many as memory or the rows of a step allow."""
        num_tokens = self.num_prompt_tokens + self.num_output_tokens
        by_memory = num_kv_tokens // (self.num_prompt_tokens + self.num_output_tokens // 2)
        by_rows = self.options.step_tokens * self.num_output_tokens // num_tokens
        return max(1, min(self.options.max_num_seqs, by_memory, by_rows))


FULL = Load(
    name="llama-3-8b",
    config=LLAMA_3_8B,
    options=EngineOptions(max_num_seqs=1024, step_tokens=2048, host_models=0),
    num_prompt_tokens=1024,
    num_output_tokens=512,
    window_s=30.0,
    batches=(1, 8, 32, 128, 256),
    batch_prompt_tokens=512,
    batch_output_tokens=32,
)
TINY = Load(
    name="llama",
    config=FAMILIES["llama"],
    options=EngineOptions(kv_cache_bytes=1 << 17, block_size=4, max_num_seqs=4, step_tokens=16, host_models=0),
    num_prompt_tokens=5,
    num_output_tokens=3,
    window_s=0.0,
    batches=(1, 3),
    batch_prompt_tokens=8,
    batch_output_tokens=3,
    dtype=torch.float32,
)


@dataclass(slots=True)
class Server:
    """An engine, and prompts that have no beginning in common."""

    engine: Engine
    times: TimedExecutor
    spec: ModelSpec
    vocab_size: int
    num_kv_tokens: int
    """That there is memory for."""
    _num_requests: int = 0
    _tail: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, load: Load, spec: ModelSpec, device: torch.device, *, graphs: bool) -> Server:
        """With the model on the device."""
        times = TimedExecutor(CudaExecutor(load.options, device, dtype=load.dtype, graphs=graphs))
        engine = Engine(times, load.options)
        model = engine.load_model(spec)
        numbers = random.Random(0)
        tail = [numbers.randrange(model.vocab_size) for _ in range(load.num_prompt_tokens + load.num_output_tokens)]
        return cls(engine, times, spec, model.vocab_size, model.num_blocks * model.block_size, _tail=tail)

    def add(self, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """One more request, which runs to its last token."""
        number = self._num_requests = self._num_requests + 1
        head = [number % self.vocab_size, number // self.vocab_size % self.vocab_size]
        prompt = [*head, *self._tail[: num_prompt_tokens - len(head)]]
        sampling = Sampling(max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True)
        chunks = self.engine.add(Payload(str(number), 0, "check", self.spec.name, prompt, sampling))
        if chunks:
            raise RuntimeError(f"a request was refused: {chunks[0].error}")

    def step(self) -> None:
        """One step of the engine."""
        chunks = self.engine.step(perf_counter())
        if error := next((chunk.error for chunk in chunks if chunk.error), ""):
            raise RuntimeError(error)


def measure_serving(
    device: torch.device, measured: Mapping[str, float], _share: int, _num_shares: int
) -> Iterator[Line]:
    """Throughput, then the steps' times with graphs and without. A tiny model where kernels are interpreted."""
    load = FULL if device.type == "cuda" else TINY
    with tempfile.TemporaryDirectory() as folder:
        max_model_len = load.num_prompt_tokens + load.num_output_tokens if device.type == "cuda" else CONTEXT
        spec = dummy(load.name, load.config, Path(folder), max_model_len)
        for graphs in (True, False):
            began_s = perf_counter()
            server = Server.load(load, spec, device, graphs=graphs)
            ways = "graphs" if graphs else "launch by launch"
            yield Line(f"loaded, captured and warm, {ways}", perf_counter() - began_s, "s")
            if graphs:
                yield from _throughput(server, load, device, measured)
            yield from _step_times(server, load, ways)
            server.engine.reset()
            server.times.unload_model(spec.name)  # the next one needs its memory
            del server
            gc.collect()


def _throughput(server: Server, load: Load, device: torch.device, measured: Mapping[str, float]) -> Iterator[Line]:
    steps, waited_s = _full_load(server, load)
    first, last = steps[0], steps[-1]
    seconds = last.done_s - first.done_s
    tokens_per_s = sum(step.num_tokens for step in steps[1:]) / seconds
    yield Line("total throughput, prompts and outputs", tokens_per_s, "tokens/s", f"{seconds:.0f} s")
    num_parameters = _num_parameters(Path(server.spec.source))
    peaks = {"measured": measured.get(MATRIX_RATE, float("nan")) * 1e12, "published": _published_flops(device)}
    for name, flops in peaks.items():
        optimum = flops / (2 * num_parameters)
        goal = OPTIMUM_GOAL if name == "measured" else None
        note = f"optimum {optimum:,.0f} tokens/s"
        yield Line(f"part of the optimum, {name} bfloat16 rate", tokens_per_s / optimum, "", note, at_least=goal)
    idle_s, busy_s = (sum(getattr(step, name) for step in steps[1:]) for name in ("idle_s", "duration_s"))
    yield Line("device waits for the host between steps", idle_s / (idle_s + busy_s), "of a step", at_most=IDLE_GOAL)
    yield Line("host works", 1 - waited_s / seconds, "of a step")
    yield Line("rows of a step", statistics.fmean(step.num_tokens for step in steps), "rows")
    yield Line("sequences of a step", statistics.fmean(step.num_sequences for step in steps), "sequences")
    yield Line("a step", 1e3 * seconds / (len(steps) - 1), "ms", f"{server.engine.num_preemptions} preemptions")


def _full_load(server: Server, load: Load) -> tuple[list[StepTime], float]:
    """The steps of the window, and how long the host waited in it."""
    fill(server, load)
    first, end_s = len(server.times.steps), perf_counter() + load.window_s
    while perf_counter() < end_s or len(server.times.steps) < first + LEAST_STEPS:
        refill(server, load)
    steps = server.times.steps[first:]
    server.engine.reset()
    return steps, sum(step.waited_s for step in steps[1:])


def fill(server: Server, load: Load) -> None:
    """Steps until as many requests run as in the long run, each as far on as one would be then: with another prompt."""
    most, num_begun = load.num_running(server.num_kv_tokens), 0
    while server.engine.stats().num_running < ALMOST * most and num_begun < 2 * most:
        for _ in range(NUM_WAITING - server.engine.stats().num_waiting):
            left = load.tokens_left(num_begun, most)
            server.add(load.num_prompt_tokens + load.num_output_tokens - left, left)
            num_begun += 1
        server.step()


def refill(server: Server, load: Load) -> None:
    """One step, with requests that wait."""
    for _ in range(NUM_WAITING - server.engine.stats().num_waiting):
        server.add(load.num_prompt_tokens, load.num_output_tokens)
    server.step()


def _step_times(server: Server, load: Load, ways: str) -> Iterator[Line]:
    for batch in load.batches:
        server.times.steps.clear()
        # the first ones have to be there still when the last prompt is done
        num_prompt_steps = -(-batch * load.batch_prompt_tokens // (load.options.step_tokens - batch))
        for _ in range(batch):
            server.add(load.batch_prompt_tokens, num_prompt_steps + load.batch_output_tokens)
        while server.engine.has_work:
            server.step()
        steps = [step for step in server.times.steps if step.is_decode and step.num_sequences == batch]
        if not steps:
            raise RuntimeError(f"no step had {batch} sequences")
        durations, gaps = ([getattr(step, name) for step in steps] for name in ("duration_s", "idle_s"))
        note = f"{1e3 * statistics.median(gaps):.3f} ms between"
        yield Line(f"decode step of {batch}, {ways}", 1e3 * statistics.median(durations), "ms", note)


def _num_parameters(path: Path) -> int:
    return sum(weight.num_numbers for weight in build_program(open_checkpoint(path).config).weights)


def _published_flops(device: torch.device) -> float:
    """NaN for a card that is not in the catalogue."""
    name = torch.cuda.get_device_name(device).lower() if device.type == "cuda" else ""
    return next((known.flops_per_s for known in DEVICES.values() if known.name in name.split()), float("nan"))
