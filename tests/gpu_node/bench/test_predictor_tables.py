"""Regressions over what was measured, where the costs are known exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_node.bench.predictors.cost_sample import KINDS, CostSample
from gpu_node.bench.predictors.tables import ModelSamples, device_tables, table

SHAPES = ((2, 32), (4, 32), (4, 64), (8, 64), (8, 32))


def exact_s(num_layers: int, hidden_size: int, size: int, batch: int = 1) -> float:
    """A step costs a millisecond a layer, a tenth for each unit of width, and a row 10 microseconds."""
    return 1e-3 * num_layers + 1e-4 * hidden_size + 1e-5 * size * batch


def measured(shape: tuple[int, int], cost_s: Callable[..., float] = exact_s) -> ModelSamples:
    sizes = [(size, False) for size in (8, 16, 64, 128)] + [(size, True) for size in (24, 96)]
    samples = [CostSample(kind, size, cost_s(*shape, size), 0.01, held) for kind in KINDS for size, held in sizes]
    samples += [CostSample("prompt", 16, cost_s(*shape, 16, batch), 0.01, batch == 3, batch) for batch in (2, 3, 4)]
    return ModelSamples(*shape, samples)


@pytest.mark.slow
def test_one_regression_over_several_models_speaks_of_a_shape_that_was_not_measured() -> None:
    """6 layers, 64 wide, 100 tokens: 6 + 6.4 + 1 ms."""
    tables = device_tables([measured(shape) for shape in SHAPES], [(6, 64), (4, 32)])
    assert tables.keys() == {(6, 64), (4, 32)}
    found = tables[6, 64]
    assert (found.num_layers, found.hidden_size) == (6, 64)
    assert found.chunk.held_out_error < 0.001
    assert found.chunk.repeatability == pytest.approx(0.01)
    assert found.chunk.sizes == [0.0, 8.0, 16.0, 24.0, 64.0, 96.0, 128.0]
    assert found.chunk.seconds[5] == pytest.approx(6e-3 + 6.4e-3 + 0.96e-3, rel=0.02)
    assert tables[4, 32].move_out.seconds[5] == pytest.approx(4e-3 + 3.2e-3 + 0.96e-3, rel=0.001)


def test_what_was_measured_of_several_prompts_together_is_not_of_one() -> None:
    """Of a table of one model, the batch is no feature."""
    alone = measured((4, 32), lambda layers, width, size, batch=1: exact_s(layers, width, size) * batch**2)
    found = table("prompt", alone.samples, 4, 32)
    assert found.held_out_error < 0.001
    assert found.seconds[0] == pytest.approx(7.2e-3, rel=0.01), "at no token, what the step costs by itself"
    assert found.seconds[2] == pytest.approx(exact_s(4, 32, 16), rel=0.001)
