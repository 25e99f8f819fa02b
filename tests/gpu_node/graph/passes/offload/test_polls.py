"""A device looks between two operators for what waits: never in the midst of one, and never after more than one."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.share import WHOLE
from gpu_node.kernels.cpu import (
    CpuCacheShape,
    CpuDevice,
    CpuLinkReceiver,
    CpuLinkSender,
    CpuLinkShape,
    CpuRemote,
    CpuRemotes,
    CpuRows,
    CpuStep,
    Int32s,
    Limits,
    Type,
)
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.offload.waiting import wait_until
from tests.gpu_node.own_arena import program_with_arena

NUM_OPERATORS, NUM_TASKS, NUM_COLUMNS = 6, 6, 2
NUM_ROWS = 1 + NUM_TASKS


def served_behind(folder: Path, num_threads: int, polled: range | tuple[int, ...]) -> list[float]:
    """How many operators were done when each of `NUM_TASKS` tasks was served that wait from the first one on.

    The device sends them to itself. Operator i writes i as the value of a token that all of them attend to, beside
    their own, whose value is 0: so what comes of one is half of what was written last.
    """
    cache = CpuCacheShape(num_layers=1, num_blocks=1, block_size=2, num_kv_heads=1, head_dim=NUM_COLUMNS)
    shape = CpuLinkShape(1, 2, 1, 1, NUM_COLUMNS, num_slots=8, max_rows=8, max_sequences=8, max_blocks=8)
    parts = [WHOLE.cut(part, NUM_TASKS) for part in range(NUM_TASKS)]
    with ExitStack() as stack:
        device = stack.enter_context(CpuDevice(num_threads))
        opened = program_with_arena(Limits(NUM_ROWS, 1, 16, 16), cache, 1)
        program, arena, _ = stack.enter_context(opened)
        link = stack.enter_context(closing(CpuLinkSender(shape, "a", "b", deadline_s=20.0, folder=folder)))
        receiver = CpuLinkReceiver(shape, "a", "b", device=device, arena=arena, folder=folder)
        stack.enter_context(closing(receiver)).lend([0])
        zeros, out = (program.buffer(CpuRows.TOKENS, Type.FLOAT32, NUM_COLUMNS) for _ in range(2))
        for part in parts:
            program.work_on(part)
            program.add("send", zeros, zeros, zeros, 0, 0)
        program.work_on(WHOLE)
        for number in range(NUM_OPERATORS):
            value = program.buffer(CpuRows.TOKENS, Type.FLOAT32, NUM_COLUMNS)
            program.buffer_values(value, CpuRows.TOKENS).fill(number + 1)
            program.add("write_kv", zeros, value, 0)
            if number in polled:
                program.add("poll")
        for part in parts:
            program.work_on(part)
            program.add("gather", out)
        wait_until(lambda: link.is_open)
        step = CpuStep(
            starts=int32(0, *[1] * NUM_TASKS),
            num_rows=int32(*[1] * NUM_ROWS),
            num_blocks=int32(*[1] * NUM_ROWS),
            block_tables=int32(*[0] * NUM_ROWS),
            token_ids=int32(*[1] * NUM_ROWS),
            draw_rows=int32(),
            copies=int32().reshape(-1, 2),
            logits=None,
            remotes=CpuRemotes.of([CpuRemote(link, link.generation, NUM_TASKS)]),
        )
        event = device.submit(program, step)
        device.wait(event)
        times = device.times(event)
        assert 0.0 < times.served_s <= times.served_s + times.waited_s < times.run_s
        assert step.remotes.lost.tolist() == [0]
        assert device.num_served == NUM_TASKS
        rows = program.buffer_values(out, CpuRows.TOKENS)[1:NUM_ROWS]
        return [2 * float(row[0]) for row in rows]


def int32(*values: int) -> Int32s:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_what_waits_is_served_behind_the_very_next_operator(tmp_path: Path, num_threads: int) -> None:
    """One task a poll: a device gets on with its own step."""
    assert served_behind(tmp_path, num_threads, range(NUM_OPERATORS)) == [1, 2, 3, 4, 5, 6]


def test_only_polled_operators_are_looked_behind(tmp_path: Path) -> None:
    """What still waits behind the last one is served by the wait for it."""
    assert served_behind(tmp_path, 2, (1, 4)) == [2, 5, 6, 6, 6, 6]


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
