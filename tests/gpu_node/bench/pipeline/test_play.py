"""How long lanes take by prediction, worked out by hand; and what is seen of lanes that slow one another."""

from __future__ import annotations

import pytest

from gpu_node.bench.pipeline.play import SlowedBy, lane_spans, makespan_s, slowed_by
from gpu_node.graph.lanes import LaneQueue, LaneTurn, ProgramLane

KINDS = "pampp"
"""Of operators: products, attention, a move."""
HALVES = SlowedBy({"a": 0.8}, {ProgramLane.COMPUTE: 0.5, ProgramLane.MEMORY: 0.1}, p=0.8, spread=0.0, num_seen=1)


def queues(compute: list[LaneTurn], memory: list[LaneTurn]) -> tuple[LaneQueue, ...]:
    return LaneQueue(ProgramLane.COMPUTE, tuple(compute)), LaneQueue(ProgramLane.MEMORY, tuple(memory))


def test_an_operator_alone_takes_its_best_time() -> None:
    one = (LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 1.0), LaneTurn(1, 1.0))),)
    assert makespan_s(one, {0: 2.0, 1: 3.0}, KINDS, HALVES) == 5.0


def test_two_lanes_slow_each_other_and_who_is_left_helps() -> None:
    # until 5 s both work: attention of 4 s at 0.8; 2.5 of 6 s of the product are done, and it goes on alone
    both = queues([LaneTurn(0, 0.5)], [LaneTurn(1, 0.5)])
    assert makespan_s(both, {0: 6.0, 1: 4.0}, KINDS, HALVES) == pytest.approx(5.0 + 3.5)


def test_a_lane_that_waits_leaves_the_device_to_the_other() -> None:
    # 1 s of the product alone; then both: 4 s of attention in 5, meanwhile 2.5 of the second product; the rest alone
    waiting = queues([LaneTurn(0, 0.5), LaneTurn(2, 0.5)], [LaneTurn(1, 0.5, (0,))])
    assert makespan_s(waiting, {0: 1.0, 1: 4.0, 2: 3.0}, KINDS, HALVES) == pytest.approx(1.0 + 5.0 + 0.5)


def test_operators_that_take_no_time_are_passed() -> None:
    both = queues([LaneTurn(0, 0.5), LaneTurn(2, 0.5, (1,))], [LaneTurn(1, 0.5, (0,))])
    assert makespan_s(both, {2: 1.0}, KINDS, HALVES) == 1.0


def test_only_what_the_other_lane_worked_beside_says_what_is_kept() -> None:
    lanes = queues([LaneTurn(0, 0.5), LaneTurn(2, 0.5)], [LaneTurn(1, 0.5), LaneTurn(3, 0.5)])
    spans = {0: (0.0, 4.0), 2: (4.0, 6.0), 1: (0.0, 2.0), 3: (5.0, 9.0)}
    seen = slowed_by(lanes, {0: 2.0, 1: 1.5, 2: 1.0, 3: 4.0}, spans, "papa")
    # 0 has the other lane beside it half of its time, 2 as well, 3 only at its beginning: 1 alone is a sample
    assert seen.of_kind == {"a": 0.75}
    assert seen.of_lane == {ProgramLane.COMPUTE: 0.5, ProgramLane.MEMORY: 0.75}
    assert (seen.p, seen.spread, seen.num_seen) == (0.75, 0.0, 1)


def test_a_kind_keeps_what_its_time_says_and_the_longest_of_the_memory_lane_is_told() -> None:
    """Attention: 3 of 4 s and 1 of 1; 4 of 5, by operators .75 and 1. What is short beside it has a P of its own."""
    lanes = queues([LaneTurn(0, 0.5)], [LaneTurn(1, 0.5), LaneTurn(2, 0.5), LaneTurn(3, 0.5)])
    spans = {0: (0.0, 9.0), 1: (0.0, 4.0), 2: (4.0, 5.0), 3: (5.0, 7.0)}
    seen = slowed_by(lanes, {0: 5.0, 1: 3.0, 2: 1.0, 3: 1.0}, spans, "paam")
    assert seen.of_kind == {"a": 0.8, "m": 0.5}
    assert (seen.p, seen.spread, seen.num_seen) == (0.8, 0.125, 2)
    assert seen.kept("never seen", ProgramLane.MEMORY) == pytest.approx(5 / 7)


def test_an_operator_begins_when_it_could() -> None:
    lanes = queues([LaneTurn(0, 0.5), LaneTurn(2, 0.5, (1,))], [LaneTurn(1, 0.5), LaneTurn(3, 0.5)])
    spans = {0: (0.5, 2.0), 2: (4.5, 6.0), 1: (0.0, 4.0), 3: (4.0, 5.0)}
    assert lane_spans(lanes, spans) == {0: (0.0, 2.0), 2: (4.0, 6.0), 1: (0.0, 4.0), 3: (4.0, 5.0)}
