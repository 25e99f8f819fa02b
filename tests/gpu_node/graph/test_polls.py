"""A device looks between two operators for what waits: never in the midst of one, and never after more than one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import c_uint64
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.polls import insert_polls
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice, CpuRows, CpuStep, Int32s, Limits, Type, View
from shared.config.engine import EngineOptions, ModelSpec
from shared.messages.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.own_arena import program_with_arena

NUM_OPERATORS, NUM_ROWS, NUM_COLUMNS = 6, 8, 16


class Adding:
    """Operator i adds 1 to what operator i - 1 wrote: so it can be seen how far the device has come."""

    def __init__(self, num_threads: int, polled: Sequence[int]) -> None:
        self.device = CpuDevice(num_threads)
        self._opened = program_with_arena(Limits(NUM_ROWS, 1, 16, 16), CpuCacheShape(1, 1, 16, 1, 2), 1)
        self.program, _, _ = self._opened.__enter__()
        self.views = [self._filled(0.0)]
        one = self._filled(1.0)
        for number in range(NUM_OPERATORS):
            self.views.append(self._filled(float("nan")))
            self.program.add("add", self.views[number], one, self.views[number + 1])
            if number in polled:
                self.program.add("poll")

    def _filled(self, value: float) -> View:
        view = self.program.buffer(CpuRows.TOKENS, Type.FLOAT32, NUM_COLUMNS)
        self.program.buffer_values(view, CpuRows.TOKENS).fill_(value)
        return view

    def num_done(self) -> int:
        """Operators that have written all that they write; asserts that no other has written anything."""
        values = torch.stack([self.program.buffer_values(view, CpuRows.TOKENS) for view in self.views[1:]])
        done = [bool((one == number + 1).all()) for number, one in enumerate(values)]
        untouched = [bool(one.isnan().all()) for one in values]
        assert [not yes for yes in done] == untouched
        return sum(done)

    def run(self) -> None:
        self.device.wait(self.device.submit(self.program, STEP))

    def close(self) -> None:
        self.device.close()
        self._opened.__exit__(None, None, None)


def int32(*values: int) -> Int32s:
    return np.array(values, dtype=np.int32)


STEP = CpuStep(
    starts=int32(0),
    num_rows=int32(NUM_ROWS),
    num_blocks=int32(1),
    block_tables=int32(0),
    token_ids=int32(*[1] * NUM_ROWS),
    draw_rows=int32(),
    copies=int32().reshape(-1, 2),
    logits=None,
)

Make = Callable[..., Adding]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Adding] = []

    def make(num_threads: int, polled: Sequence[int] = range(NUM_OPERATORS)) -> Adding:
        made.append(Adding(num_threads, polled))
        return made[-1]

    yield make
    for adding in made:
        adding.close()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_what_waits_is_served_behind_the_very_next_operator(make: Make, num_threads: int) -> None:
    adding, num_asked = make(num_threads), c_uint64(0)
    served: list[int] = []

    def serve() -> None:
        served.append(adding.num_done())
        num_asked.value += 1  # the next task waits from now on

    adding.device.set_poll(serve, num_asked)
    num_asked.value += 1
    adding.run()
    assert served == [1, 2, 3, 4, 5, 6]


def test_nothing_is_called_when_nothing_waits_and_once_for_all_that_was_asked(make: Make) -> None:
    adding, num_asked = make(2), c_uint64(7)
    served: list[int] = []
    adding.device.set_poll(lambda: served.append(adding.num_done()), num_asked)
    adding.run()
    assert served == []
    for view in adding.views[1:]:
        adding.program.buffer_values(view, CpuRows.TOKENS).fill_(torch.nan)
    num_asked.value += 3
    adding.run()
    assert served == [1]
    num_asked.value += 1
    adding.device.clear_poll()
    adding.run()
    assert served == [1]


def test_only_polled_operators_are_looked_behind(make: Make) -> None:
    adding, num_asked = make(2, polled=(1, 4)), c_uint64(0)
    served: list[int] = []

    def serve() -> None:
        served.append(adding.num_done())
        num_asked.value += 1

    adding.device.set_poll(serve, num_asked)
    num_asked.value += 1
    adding.run()
    assert served == [2, 5]


def test_the_reference_executor_calls_its_hook_at_each_poll(tiny_path: Path) -> None:
    options = EngineOptions(kv_cache_bytes=1 << 20)
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT)
    greedy = Sampling(max_tokens=8, temperature=0.0)
    plan = StepPlan((ScheduledSequence(0, (5, 6, 7), 0, (0,), (Draw(0, greedy, 0),)),))
    calls: list[None] = []
    polled = ReferenceExecutor(options, passes=(insert_polls,), poll=lambda: calls.append(None))
    plain = ReferenceExecutor(options)
    results = []
    for executor in (polled, plain):
        executor.load_model(spec)
        results.append(executor.submit(plan).result().token_ids)
    assert results[0] == results[1]
    assert len(calls) == 2 + 16 * tiny.LAYERS + 3
