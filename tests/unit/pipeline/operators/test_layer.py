"""Operators of a layer, their parts, and what these depend on: by hand."""

from __future__ import annotations

import pytest

from services.pipeline.operators.layer import Edge, LayerLayout, edges, layer_operators, sequential_s, split
from services.pipeline.operators.times import layer_times
from shared.config.hardware import model_named
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.calibration import calibrate
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.machine import machine
from tests.unit.pipeline.layers import US, two_lanes

BATCH = DenseBatch(2048, MeanLengths(512, 1024))
TIMES = layer_times(machine("a100", 8), model_named("llama-2-70b"), BATCH)


def test_parts_pay_what_is_fixed_again() -> None:
    parts = split(two_lanes(384), {"A": (128,)})
    assert [(part.operator, part.first_row, part.end_row) for part in parts] == [
        ("A", 0, 128),
        ("A", 128, 384),
        ("N", 0, 384),
    ]
    assert [part.best_s for part in parts] == pytest.approx([74 * US, 138 * US, 101 * US])


def test_parts_depend_where_rows_intersect() -> None:
    operators = two_lanes(384)
    cuts = {"A": (128,), "N": (256,)}
    # A: 0-128, 128-384; N: 0-256, 256-384
    assert edges(operators, split(operators, cuts)) == [
        *(Edge(2, 0, 1), Edge(2, 1, 1), Edge(3, 1, 1)),
        *(Edge(0, 2, 0), Edge(1, 2, 0), Edge(1, 3, 0)),
    ]


def test_calibration_by_hand() -> None:
    found = calibrate()
    # PfAttn: 4.56 ms, of which .367 are its operations; 80 layers
    assert found.launch_s == pytest.approx((4.56e-3 - 0.3671e-3) / 80, rel=1e-3)
    # DecAttn: 35.60 ms less 80 launches, over 28.885 ms of bytes
    assert found.attention_slowness == pytest.approx((35.60 - 4.193) / 28.885, rel=1e-3)
    assert found.network_slowness == pytest.approx(47.92 / 31.317, rel=1e-3)
    # D: 30.836 ms at the peak; 34.96 ms less 2.349 ms of reading weights
    assert found.rate_share["D"] == pytest.approx(30.836 / (34.96 - 2.349), rel=1e-3)


def test_a_layer_takes_what_table_2_measures_and_its_norms() -> None:
    operators = layer_operators(TIMES, BATCH, 8, LayerLayout(2048))
    measured_s = 225.05e-3 / 80
    norms_s = 2 * 4 * 2048 * 8192 * 2 / 2000e9
    assert sequential_s(operators) == pytest.approx(measured_s + norms_s, rel=1e-3)
    assert sequential_s(operators) == pytest.approx(2920e-6, rel=0.05), "figure 10"


def test_gathered_rows_and_reduced_rows_move_as_much() -> None:
    gathered, reduced = (sequential_s(layer_operators(TIMES, BATCH, 8, LayerLayout(num))) for num in (2048, 0))
    assert gathered == pytest.approx(reduced)
    half = {one.name: (one.first_row, one.end_row) for one in layer_operators(TIMES, BATCH, 8, LayerLayout(768))}
    assert half["Attn.AG"] == half["O.AG"] == (0, 768)
    assert half["O.AR"] == (768, 2048)


def test_phases_first_or_spread() -> None:
    first = {one.name: one for one in layer_operators(TIMES, BATCH, 8, LayerLayout(0))}
    assert (first["DecAttn"].first_row, first["DecAttn"].end_row) == (0, 1365)
    assert (first["PfAttn"].first_row, first["PfAttn"].end_row) == (1365, 2048)
    spread = {one.name: one for one in layer_operators(TIMES, BATCH, 8, LayerLayout(0, is_spread=True))}
    for name in ("DecAttn", "PfAttn"):
        assert spread[name].num_rows == 2048
        assert spread[name].time.seconds(2048) == pytest.approx(first[name].time.seconds(first[name].num_rows))


def test_one_device_has_norms_and_no_collectives() -> None:
    batch = DenseBatch(1024, MeanLengths(1024, 512))
    times = layer_times(machine("a100", 1), model_named("llama-3-8b"), batch)
    operators = layer_operators(times, batch, 1, LayerLayout(0), is_offloaded=True)
    assert [one.name for one in operators] == [
        *("AttnNorm", "KQV", "DecAttn", "PfAttn", "Copy", "O", "FfnNorm", "UG", "D"),
    ]
    assert [lane.value for lane in {one.lane: None for one in operators}] == ["memory", "compute", "copy"]


@pytest.mark.parametrize(
    ("lane", "share", "performance"),
    [
        (ResourceLane.COMPUTE, 0.7, 0.7),
        (ResourceLane.MEMORY, 0.2, 0.3),
        (ResourceLane.MEMORY, 0.3, 0.55),  # between .3 and .8
        (ResourceLane.MEMORY, 0.4, 0.8),
        (ResourceLane.NETWORK, 0.1, 0.3),
        (ResourceLane.NETWORK, 0.9, 1.0),
        (ResourceLane.COPY, 1.0, 1.0),
    ],
)
def test_table_3(lane: ResourceLane, share: float, performance: float) -> None:
    assert TABLE_3.performance(lane, share) == pytest.approx(performance)


def test_more_than_a_device_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 1"):
        TABLE_3.performance(ResourceLane.COMPUTE, 1.1)
