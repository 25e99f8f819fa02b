"""The CPU device computes a step while the host plans the next: no token changes, and the device hardly waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.workload import Answers, answers, mixed_requests

GREEDY = Sampling(max_tokens=8, temperature=0.0)
NUM_AT_ONCE = 20


@contextmanager
def cpu_engine(path: Path, **options: Any) -> Iterator[tuple[CpuExecutor, Engine]]:
    given: dict[str, Any] = {"block_size": 4, "kv_cache_bytes": 1 << 20, "max_num_seqs": 32, "step_tokens": 64}
    chosen = EngineOptions(**given | options)
    with closing(CpuExecutor(chosen, num_threads=1)) as executor:
        engine = Engine(executor, chosen)
        engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
        yield executor, engine


@pytest.mark.parametrize(("seed", "step_tokens", "max_num_seqs"), [(3, 64, 32), (4, 9, 7)])
def test_steps_planned_ahead_give_what_steps_one_by_one_give(
    tiny_path: Path, seed: int, step_tokens: int, max_num_seqs: int
) -> None:
    found: list[Answers] = []
    for ahead in (True, False):
        options = {"async_scheduling": ahead, "step_tokens": step_tokens, "max_num_seqs": max_num_seqs}
        with cpu_engine(tiny_path, **options) as (_, engine):
            found.append(answers(engine, mixed_requests(24, seed)))
    assert found[0] == found[1]


def test_the_device_says_how_long_it_computed_and_how_long_it_waited(tiny_path: Path) -> None:
    part = ScheduledSequence(0, (5, 6, 7), 0, (0,), (Draw(0, GREEDY, 0),))
    with cpu_engine(tiny_path) as (executor, _):
        first = executor.submit(StepPlan((part,))).result()
        assert (first.idle_s, first.duration_s > 0) == (0.0, True)
        idles_s = [step.result().idle_s for step in [executor.submit(StepPlan((part,))) for _ in range(NUM_AT_ONCE)]]
        assert idles_s[0] > 0, "it waited for the host, which was waiting for it"
        assert min(idles_s[1:]) < 1e-3, "one at least was in the queue, however busy the machine is"


def test_a_pause_without_requests_is_no_gap(tiny_path: Path) -> None:
    with cpu_engine(tiny_path, async_scheduling=False) as (_, engine):
        for name in "ab":
            tiny.run(engine, [tiny.request(name, [5], 1)])
        assert engine.device_time.num_steps == 2
        assert engine.device_time.gap_s == 0.0
        tiny.run(engine, [tiny.request("c", [5], 2)])
        assert engine.device_time.gap_s > 0.0, "the second step was planned when the first was done"
