"""Executors that run a model without some of its operators, and the steps that they are timed with."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import median
from threading import Event, Thread

import numpy as np

from gpu_node.bench.kernels.roles import without
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec

MAX_CONTEXT_TOKENS = 24_576
"""Of a step, all sequences together: their keys and values are in memory."""
NUM_AHEAD = 4
"""Steps in the queue of a device that is kept busy."""
_ONE = np.frombuffer(b"\x80\x3f", dtype=np.uint8)
"""The number 1 in bfloat16."""


class TimedExecutor:
    """A model on some threads without some of its operators; what it computes is of no use, how long it takes is."""

    def __init__(
        self,
        options: EngineOptions,
        spec: ModelSpec,
        token_bytes: int,
        cpus: Sequence[int],
        left_out: Collection[str] = (),
    ) -> None:
        self._executor = CpuExecutor(
            replace(options, kv_cache_bytes=(MAX_CONTEXT_TOKENS + options.step_tokens) * token_bytes, host_models=0),
            len(cpus),
            cpus,
            passes=(without(left_out),),
        )
        self._spec = spec
        self._block_size = options.block_size
        model = self._executor.load_model(spec)
        self.max_model_len = model.max_model_len
        content = np.tile(_ONE, model.block_bytes // len(_ONE)).data
        for block in range(model.num_blocks):  # memory that was never written is not there
            self._executor.write_blocks(model.name, [block], content)

    def close(self) -> None:
        """Free all of it."""
        self._executor.close()

    def times_s(self, plan: StepPlan, num_steps: int) -> list[float]:
        """Of so many steps in one queue."""
        plan = replace(plan, model=self._spec.name)
        steps = [self._executor.submit(plan) for _ in range(num_steps)]
        return [step.result().duration_s for step in steps]

    def keep_busy(self, plan: StepPlan, ends: Event) -> None:
        """One step behind another until it ends."""
        plan = replace(plan, model=self._spec.name)
        steps = deque(self._executor.submit(plan) for _ in range(NUM_AHEAD))
        while steps:
            steps.popleft().result()
            if not ends.is_set():
                steps.append(self._executor.submit(plan))

    def decodes(self, num_rows: int, context_tokens: int) -> StepPlan:
        """A row each, over so many tokens each."""
        return self._plan([(context_tokens - 1, 1)] * num_rows)

    def prompts(self, num_rows: int, prompt_tokens: int) -> StepPlan:
        """Whole prompts, and the middle of one for what is left of the rows."""
        parts = [(0, prompt_tokens)] * (num_rows // prompt_tokens)
        if rest := num_rows % prompt_tokens:
            parts.append(((prompt_tokens - rest) // 2, rest))
        return self._plan(parts)

    def _plan(self, parts: Sequence[tuple[int, int]]) -> StepPlan:
        """By sequence, tokens before its rows, and rows; blocks of their own, and nothing is drawn."""
        sequences, first_block = [], 0
        for number, (start, num_rows) in enumerate(parts):
            num_blocks = -(-(start + num_rows) // self._block_size)
            blocks = tuple(range(first_block, first_block + num_blocks))
            sequences.append(ScheduledSequence(number, (1,) * num_rows, start, blocks, ()))
            first_block += num_blocks
        return StepPlan(tuple(sequences))


def beside(one: TimedExecutor, plan: StepPlan, other: TimedExecutor, num_steps: int) -> tuple[float, float]:
    """Medians of a step of each while the other is busy all the time."""
    found = []
    for timed, busy in ((one, other), (other, one)):
        ends = Event()
        thread = Thread(target=busy.keep_busy, args=(plan, ends), daemon=True)
        thread.start()
        try:
            found.append(median(timed.times_s(plan, num_steps)))
        finally:
            ends.set()
            thread.join()
    return found[0], found[1]
