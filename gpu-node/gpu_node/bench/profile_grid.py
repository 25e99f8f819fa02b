"""Which batches and contexts a profile measures, and the cost fitted to one part of them and judged by the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from gpu_node.bench.point import BenchPoint
from gpu_node.bench.report import ProfilePoint
from gpu_node.bench.step_fit import StepSample, fit, median_error
from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost

BATCHES, CONTEXTS = (1, 4, 16, 64), (16, 256, 1024)
HELD_OUT_BATCHES, HELD_OUT_CONTEXTS = (2, 8, 32), (96, 640)
NUM_DECODES = 12
"""Steps of each point in which the whole batch decodes."""
MAX_POINT_TOKENS = 16_384
"""Prompts of a point, all together: more would take a small device minutes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A kind of step at a point of the grid."""

    kind_of_step: str
    point: BenchPoint
    samples: list[StepSample]
    is_held_out: bool

    def line(self, cost: StepCost) -> ProfilePoint:
        """What is told of it."""
        return ProfilePoint(
            kind_of_step=self.kind_of_step,
            num_sequences=self.point.num_requests,
            context_tokens=self.point.num_prompt_tokens,
            num_steps=len(self.samples),
            measured_s=median(sample.duration_s for sample in self.samples),
            predicted_s=median(sample.predicted_s(cost) for sample in self.samples),
            is_held_out=self.is_held_out,
        )


def grid(
    batches: Sequence[int], contexts: Sequence[int], options: EngineOptions, model: LoadedModel
) -> list[BenchPoint]:
    """Points that the engine can run and that do not take for ever."""
    points = [_point(batch, context, options.step_tokens) for batch, context in product(batches, contexts)]
    return [
        point
        for point in points
        if point.num_requests <= options.max_num_seqs
        and point.num_tokens <= model.max_model_len
        and point.num_requests * point.num_prompt_tokens <= MAX_POINT_TOKENS
        and point.num_requests * point.num_tokens <= model.num_blocks * model.block_size // 2
    ]


def _point(batch: int, context: int, step_tokens: int) -> BenchPoint:
    """One whose first request still decodes when the last prompt is computed, and some steps longer."""
    num_prompt_steps = -(-batch * context // max(1, step_tokens - batch))
    return BenchPoint(batch, context, num_prompt_steps + NUM_DECODES)


@dataclass(frozen=True, slots=True)
class FittedCost:
    """What the steps of a grid come to."""

    cost: StepCost
    fit_error: float
    """Median of |predicted / measured - 1| over the steps that it was fitted to."""
    held_out_error: float
    """Likewise over the others."""


def fit_grid(measured: Sequence[Measured]) -> FittedCost:
    """Fitted to what is not held out."""
    samples = [sample for one in measured if not one.is_held_out for sample in one.samples]
    others = [sample for one in measured if one.is_held_out for sample in one.samples]
    cost = fit(samples)
    return FittedCost(cost, median_error(cost, samples), median_error(cost, others))
