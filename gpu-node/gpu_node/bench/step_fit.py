"""The step cost that fits measured steps best, and how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpu_node.engine.measures.least_squares import NormalEquations
from shared.messages.nodes.step_cost import StepCost

MAX_ROUNDS = 10
USUAL_ERROR = 0.1
"""Steps that are farther off than this count less, in inverse proportion (Huber, 1964): the system may have held them
up."""
PRIOR_WEIGHT = 1e-9
"""Of the number 0, for what no step tells anything of."""


@dataclass(frozen=True, slots=True)
class StepSample:
    """A step that was measured."""

    num_tokens: int
    num_context_tokens: int
    num_attended_tokens: int
    duration_s: float

    def error(self, cost: StepCost) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted_s(cost) / self.duration_s - 1.0)

    def predicted_s(self, cost: StepCost) -> float:
        """What the cost says of a step of its size."""
        return cost.predict_s(self.num_tokens, self.num_context_tokens, self.num_attended_tokens)


def fit(samples: Sequence[StepSample]) -> StepCost:
    """No negative number, least relative errors; at least one sample."""
    numbers = [(1, one.num_tokens, one.num_context_tokens, one.num_attended_tokens) for one in samples]
    units = [1.0 / max(1.0, sum(row[i] for row in numbers) / len(numbers)) for i in range(4)]
    weights = [1.0] * len(samples)
    cost = StepCost(0.0, 0.0, 0.0, 0.0)
    for _ in range(MAX_ROUNDS):
        sums = NormalEquations(4)
        for row, sample, weight in zip(numbers, samples, weights, strict=True):
            parts = [number * unit / sample.duration_s for number, unit in zip(row, units, strict=True)]
            sums.add(parts, 1.0, weight)
        shares = sums.solve([0.0] * 4, PRIOR_WEIGHT)
        cost = StepCost(*(share * unit for share, unit in zip(shares, units, strict=True)))
        weights = [1.0 / max(1.0, sample.error(cost) / USUAL_ERROR) for sample in samples]
    return cost


def median_error(cost: StepCost, samples: Sequence[StepSample]) -> float:
    """Of the predictions of these steps."""
    return median(sample.error(cost) for sample in samples)
