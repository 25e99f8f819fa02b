"""Rules of a schedule: planted faults are found; periods by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.pipeline.operators.layer import Edge, NanoOperator, edges, split
from services.pipeline.schedules.greedy import Task, as_schedule, play
from services.pipeline.schedules.schedule import PartSlot, Schedule
from services.pipeline.search.structure import sequential_schedule
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.periodic import Gap, shortest_period
from tests.unit.pipeline.layers import US, two_lanes

A = NanoOperator("A", ResourceLane.COMPUTE, 0, 256, 60 * US)
M = NanoOperator("M", ResourceLane.MEMORY, 0, 256, 40 * US)
GOOD = Schedule(100 * US, (PartSlot(A, 0.0, 100 * US, 0.6), PartSlot(M, 50 * US, 50 * US, 0.4)))
"""A product at .6, and attention at .4 that keeps .8 of its speed."""


def test_a_good_schedule_passes() -> None:
    GOOD.check([Edge(1, 0, 1)], TABLE_3)
    assert GOOD.span_s == pytest.approx(100 * US)
    assert GOOD.makespan_s(3) == pytest.approx(300 * US)
    assert GOOD.idle_s(ResourceLane.COMPUTE) == 0.0
    assert GOOD.idle_s(ResourceLane.MEMORY) == pytest.approx(50 * US)
    assert GOOD.most_used() == pytest.approx(1.0)


def test_a_child_before_its_parent_ends_is_found() -> None:
    with pytest.raises(AssertionError, match="starts before"):
        GOOD.check([Edge(0, 1, 0)], TABLE_3)


def test_a_lane_used_twice_is_found_also_across_layers() -> None:
    with pytest.raises(AssertionError, match="share a lane"):
        replace(GOOD, period_s=99 * US).check([], TABLE_3)


def test_more_than_the_device_is_found() -> None:
    first, second = GOOD.slots
    crowded = replace(GOOD, slots=(replace(first, share=0.7, duration_s=60 * US / 0.7), second))
    with pytest.raises(AssertionError, match="are used at once"):
        crowded.check([], TABLE_3)


def test_a_duration_that_is_not_its_share_s_is_found() -> None:
    first, second = GOOD.slots
    with pytest.raises(AssertionError, match="takes D"):
        replace(GOOD, slots=(replace(first, duration_s=90 * US), second)).check([], TABLE_3)


def test_the_shortest_period_is_the_greatest_ratio_of_a_cycle() -> None:
    # 0 -> 1 takes 3, 1 -> 0 of the next layer 4: 7 a layer; 1 -> 1 two layers later takes 10: 5 a layer
    gaps = [Gap(0, 1, 3.0, 0), Gap(1, 0, 4.0, 1), Gap(1, 1, 10.0, 2)]
    found = shortest_period(2, gaps, 20.0)
    assert found is not None
    period_s, starts = found
    assert period_s == pytest.approx(7.0, abs=1e-6)
    assert starts[1] - starts[0] == pytest.approx(3.0, abs=1e-6)
    assert shortest_period(2, gaps, 6.9) is None
    assert shortest_period(2, [Gap(0, 1, 1.0, 0), Gap(1, 0, 1.0, 0)], 100.0) is None, "a cycle within a layer"


def test_greedy_play_by_hand() -> None:
    # A takes 74 µs for each half, N 37: N of one half runs while A runs the other, so A never waits
    operators = two_lanes(256)
    parts = split(operators, {"A": (128,), "N": (128,)})
    depend = edges(operators, parts)
    tasks = [Task(part.lane, part.best_s, 0.0) for part in parts]
    schedule = as_schedule(parts, tasks, depend, play(tasks, depend))
    assert schedule is not None
    assert schedule.period_s == pytest.approx(148 * US, rel=1e-6)
    schedule.check(depend, None)
    assert sequential_schedule(parts).period_s == pytest.approx(222 * US)
