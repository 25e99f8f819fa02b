"""From measurements to what engines read: the best regression of each cost, tabulated."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import mean

from gpu_node.bench.predictors.cost_sample import KINDS, CostKind, CostSample
from gpu_node.bench.predictors.regression import Features, Fitted, best_fit
from shared.config.measured.predictors import PredictorTable, ShapeTables


@dataclass(frozen=True, slots=True)
class ModelSamples:
    """What was measured of a model of one shape."""

    num_layers: int
    hidden_size: int
    samples: Sequence[CostSample]

    def of(self, kind: CostKind, *, is_held_out: bool) -> list[tuple[Features, float]]:
        """Features and seconds of one kind of cost."""
        return [
            (Features(self.num_layers, self.hidden_size, one.size, one.batch), one.seconds)
            for one in self.samples
            if one.kind == kind and one.seconds > 0 and one.is_held_out == is_held_out
        ]


def table(kind: CostKind, samples: Sequence[CostSample], num_layers: int, hidden_size: int) -> PredictorTable:
    """Of one kind of cost of one model, by what was measured of one request at a time."""
    alone = [ModelSamples(num_layers, hidden_size, [one for one in samples if one.batch == 1])]
    return _tabulated(kind, alone, _fitted(kind, alone), num_layers, hidden_size)


def device_tables(
    measured: Sequence[ModelSamples], shapes: Collection[tuple[int, int]]
) -> dict[tuple[int, int], ShapeTables]:
    """One regression of each cost over several models' layers, hidden sizes, tokens and batches (§3.2), by shape.

    ``shapes`` are layers and hidden sizes, of models that were measured and of others.
    """
    fits = {kind: _fitted(kind, measured) for kind in KINDS}

    def tables(num_layers: int, hidden_size: int) -> ShapeTables:
        found = {kind: _tabulated(kind, measured, fits[kind], num_layers, hidden_size) for kind in KINDS}
        return ShapeTables(
            num_layers, hidden_size, found["prompt"], found["chunk"], found["move_out"], found["move_in"]
        )

    return {shape: tables(*shape) for shape in shapes}


def _fitted(kind: CostKind, measured: Sequence[ModelSamples]) -> Fitted:
    fitted = [pair for one in measured for pair in one.of(kind, is_held_out=False)]
    return best_fit(fitted, [pair for one in measured for pair in one.of(kind, is_held_out=True)])


def _tabulated(
    kind: CostKind, measured: Sequence[ModelSamples], best: Fitted, num_layers: int, hidden_size: int
) -> PredictorTable:
    """At all sizes that were measured and at 0, where only a prompt step costs anything."""
    mine = [sample for one in measured for sample in one.samples if sample.kind == kind and sample.seconds > 0]
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
