"""What no order of a layer's operators beats, by hand."""

from __future__ import annotations

import pytest

from services.pipeline.operators.layer import NanoOperator
from services.pipeline.operators.setting import Setting
from services.pipeline.search.ceiling import ceilings, least_period_s
from shared.config.hardware import model_named
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.machine import machine
from tests.unit.pipeline.layers import US


def part(lane: ResourceLane, best_us: float) -> NanoOperator:
    return NanoOperator(lane.value, lane, 0, 128, best_us * US)


def test_a_lane_alone_takes_its_own_time() -> None:
    assert least_period_s([part(ResourceLane.COMPUTE, 60), part(ResourceLane.COMPUTE, 40)], TABLE_3) == pytest.approx(
        100 * US
    )


def test_memory_at_its_best_exchange_rate() -> None:
    # 40 µs of attention at .4 last 50 and use 20 of the device: 120, and 50 is no more than that
    found = least_period_s([part(ResourceLane.COMPUTE, 100), part(ResourceLane.MEMORY, 40)], TABLE_3)
    assert found == pytest.approx(120 * US)


def test_a_lane_that_is_too_slow_at_its_best_rate_mixes_two_shares() -> None:

    found = least_period_s([part(ResourceLane.COMPUTE, 100), part(ResourceLane.NETWORK, 50)], TABLE_3)
    # x at .1: x 50/.3 + (1 - x) 50/.5 <= T, 100 + x 50/3 + (1 - x) 20 = T: x 66.7 <= T - 100, T = 120 - 3.33 x
    assert found == pytest.approx((120 - 10 / 3 * (20 / 70)) * US, rel=1e-6)


def test_two_parts_have_a_lower_ceiling_than_whole_operators() -> None:
    model, group = model_named("llama-2-70b"), machine("a100", 8)
    whole_s, halves_s = ceilings(Setting.published(group, model, DenseBatch(2048, MeanLengths(512, 1024))))
    assert 2240 < whole_s * 1e6 < 2250
    assert 2370 < halves_s * 1e6 < 2380, "NanoFlow's own 2,486 is above"
