"""Steps as an engine has them while requests wait: decodes of all running requests, and prompts with what is left."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.bench.point import BenchPoint
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from shared.messages.requests.payload import Sampling

ROWS_GRANULE = 8


@dataclass(frozen=True, slots=True)
class FullBatch:
    """How many requests run at a time, and how large a step is so that none has to wait for rows."""

    num_running: int
    num_rows: int

    @classmethod
    def of(cls, point: BenchPoint) -> FullBatch:
        """Half of the requests run, so that others wait until the first are done (NanoFlow, §4.2.1).

        For each output token a request has (prompt + output) / output rows to compute.
        """
        num_running = max(1, point.num_requests // 2)
        rows = num_running * point.num_tokens / point.num_output_tokens
        return cls(num_running, max(ROWS_GRANULE, round(rows / ROWS_GRANULE) * ROWS_GRANULE))


def full_step(point: BenchPoint, batch: FullBatch, model: LoadedModel) -> StepPlan:
    """A step in the midst of a point: decodes in the middle of their output, and chunks of prompts."""
    num_prompt = batch.num_rows - batch.num_running
    sizes = []
    while num_prompt > 0:
        sizes.append((0, min(num_prompt, point.num_prompt_tokens)))
        num_prompt -= sizes[-1][1]
    middle = point.num_prompt_tokens + point.num_output_tokens // 2
    sizes += [(middle, 1)] * batch.num_running
    sequences = []
    next_block = 0
    for number, (start, num_rows) in enumerate(sizes):
        num_blocks = -(-(start + num_rows) // model.block_size)
        table = tuple(range(next_block, next_block + num_blocks))
        next_block += num_blocks
        assert next_block <= model.num_blocks, "the point fits into the KV memory"
        draw = Draw(number, Sampling(max_tokens=1, temperature=0.0), position=0)
        draws = (draw,) if num_rows == 1 else ()
        sequences.append(ScheduledSequence(number, (number % model.vocab_size,) * num_rows, start, table, draws))
    return StepPlan(tuple(sequences), model=model.name)
