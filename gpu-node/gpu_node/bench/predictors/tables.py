"""From measurements to what engines read: the best regression of each cost, tabulated."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from gpu_node.bench.predictors.regression import Features, best_fit
from gpu_node.bench.predictors.samples import CostKind, CostSample
from shared.config.predictors import PredictorTable


def table(kind: CostKind, samples: Sequence[CostSample], num_layers: int, hidden_size: int) -> PredictorTable:
    """Of one kind of cost, at all sizes that were measured and at 0, where only a prompt step costs anything."""
    mine = [sample for sample in samples if sample.kind == kind and sample.seconds > 0]
    pairs = [(Features(num_layers, hidden_size, one.size), one.seconds) for one in mine if not one.is_held_out]
    held_out = [(Features(num_layers, hidden_size, one.size), one.seconds) for one in mine if one.is_held_out]
    best = best_fit(pairs, held_out)
    sizes = sorted({one.size for one in mine})
    seconds = [best.predict(Features(num_layers, hidden_size, size)) for size in sizes]
    slope = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    at_zero = max(0.0, seconds[0] - slope * sizes[0]) if kind == "prompt" else 0.0
    return PredictorTable(
        sizes=[0.0, *map(float, sizes)],
        seconds=[at_zero, *seconds],
        regressor=best.regressor,
        degree=best.degree,
        held_out_error=best.held_out_error,
        repeatability=mean(one.spread for one in mine if one.is_held_out),
    )
