"""Executors that run a model without some of its operators, and the steps that they are timed with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from gpu_node.bench.kernels.roles import without
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.cpu.step import RunningStep
from shared.config.engine import EngineOptions, ModelSpec
from shared.errors import OperatorError

MAX_CONTEXT_TOKENS = 24_576
"""Of a step, all sequences together: their keys and values are in memory."""
LONGER = 3
"""How much longer a queue is than the one beside it."""
_ONE = np.frombuffer(b"\x80\x3f", dtype=np.uint8)
"""The number 1 in bfloat16."""


class MachineBusyError(OperatorError, RuntimeError):
    """Something else runs on the machine, so that nothing can be measured."""


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
        content = np.tile(_ONE, model.block_bytes // len(_ONE)).data
        for block in range(model.num_blocks):  # memory that nobody has written is not there
            self._executor.write_blocks(model.name, [block], content)

    def close(self) -> None:
        """Free all of it."""
        self._executor.close()

    def times_s(self, plan: StepPlan, num_steps: int) -> list[float]:
        """Of so many steps in one queue."""
        return [step.result().duration_s for step in self.submit(plan, num_steps)]

    def submit(self, plan: StepPlan, num_steps: int) -> list[RunningStep]:
        """So many steps in one queue; returns at once."""
        return [self._executor.submit(replace(plan, model=self._spec.name)) for _ in range(num_steps)]

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


def beside(
    one: TimedExecutor, plan: StepPlan, other: TimedExecutor, other_plan: StepPlan, num_steps: int
) -> tuple[float, float]:
    """Medians of a step of each while the other is busy all the time: each beside a queue that outlasts its own."""
    alone_s = median(one.times_s(plan, 2)), median(other.times_s(other_plan, 2))
    sides = ((one, plan), (other, other_plan))
    found = []
    for first, second in ((0, 1), (1, 0)):
        num_others = max(2, round(LONGER * num_steps * alone_s[first] / alone_s[second]))
        waiting = sides[second][0].submit(sides[second][1], num_others)
        found.append(median(sides[first][0].times_s(sides[first][1], num_steps)))
        if waiting[-1].is_done():
            raise MachineBusyError("a queue that should outlast another did not: the machine does something else")
        waiting[-1].result()  # those before it are done; their times may be forgotten by now
    return found[0], found[1]
