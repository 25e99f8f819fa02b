"""Waits by equations 1-3 of Weaver, and plans that are made again when profiles drift, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.poll_wait import blocked_s, expected_wait_s, operator_wait_s
from gpu_node.graph.passes.offload.split import split_operators
from gpu_node.graph.passes.offload.split_plan import splittable
from gpu_node.graph.passes.offload.splitting import OffloadProfile, Splitting
from gpu_node.graph.program import OperatorKind
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.graph.test_program_cost import config

FUSED = fuse(build_program(replace(config(num_layers=1), intermediate_size=64)))
PLACE = {one.kind: index for index, one in enumerate(FUSED.operators)}
FEED_FORWARD = PLACE[OperatorKind.GATED_LINEAR]


def profile(
    feed_forward_s: float = 8.0, local_s: float = 5.0, service_s: float = 3.0, step_s: float = 20.0
) -> OffloadProfile:
    """All other operators take a second each; the sender has two layers."""
    durations_s = [1.0] * len(FUSED.operators)
    durations_s[FEED_FORWARD] = feed_forward_s
    return OffloadProfile(durations_s, local_s, service_s, step_s, num_tasks=2)


def test_equations_1_and_2() -> None:
    assert (blocked_s(5.0, 2.0), blocked_s(1.0, 2.0)) == (3.0, 0.0)
    # of 8 s with a slack of 2 s: from 0 to 6 s late in six of eight seconds, 3 s on average
    assert operator_wait_s(8.0, 2.0) == 36 / 16 == 6 / 8 * 3
    assert operator_wait_s(2.0, 2.0) == operator_wait_s(0.0, 2.0) == 0.0
    # a task that takes a second longer than the sender's own work is late by that whatever runs
    assert operator_wait_s(8.0, -1.0) == 4 + 1
    assert operator_wait_s(8.0, 0.0) == 4.0


def test_equation_3_meets_each_operator_in_proportion_to_its_time() -> None:
    assert expected_wait_s([8.0, 3.0, 1.0], 2.0) == pytest.approx((36 + 1) / (2 * 12))
    assert expected_wait_s([8.0, 4.0], -1.0) == pytest.approx((8 * 5 + 4 * 3) / 12)
    assert expected_wait_s([], 2.0) == 0.0


def test_a_plan_keeps_waits_of_a_step_within_a_twentieth_of_it() -> None:
    splitting = Splitting(splittable(FUSED))
    assert profile().slack_s == 2.0
    assert profile().most_wait_s == 0.5  # of each of two tasks: 1 s of 20
    others_s = len(FUSED.operators) - 1
    assert profile().wait_s == pytest.approx(36 / (2 * (8 + others_s)))
    assert splitting.observe(profile())
    # halved once: 2 * 4 / (2 * 18) < 0.5
    assert splitting.plan == {FEED_FORWARD: 2}
    assert len(split_operators(FUSED, splitting.plan).operators) == len(FUSED.operators) + 1


def test_a_plan_is_made_again_when_something_has_moved_by_a_fifth() -> None:
    splitting = Splitting(splittable(FUSED))
    splitting.observe(profile())
    assert not splitting.observe(profile(local_s=5.9)), "less than a fifth"
    assert not splitting.observe(profile(service_s=3.5, step_s=23.0))
    assert not splitting.observe(profile(local_s=5.9, service_s=3.5, step_s=23.0)), "each by itself"
    # a slack of 7 s, and no split is needed
    assert splitting.observe(profile(local_s=10.0))
    assert splitting.plan == {}
    assert not splitting.observe(profile(local_s=11.9)), "a fifth of 10 s, not of 5 s"
    assert splitting.observe(profile(step_s=2.0)), "a quicker sender waits for less"
    assert splitting.plan[FEED_FORWARD] == 4  # as long as the slack: nothing is left to wait for
    drifted = profile(feed_forward_s=8.0 + (8 + len(FUSED.operators) - 1) / 4)
    assert drifted.has_drifted_from(profile())
    assert replace(profile(), num_tasks=3).has_drifted_from(profile())


def test_a_task_that_takes_longer_than_the_senders_own_work_is_no_reason_to_split_without_end() -> None:
    late = profile(local_s=3.0, service_s=30.0, step_s=80.0)
    assert late.slack_s == 0.0
    assert late.wait_s == pytest.approx((64 + 12) / (2 * 20)), "of operators alone"
    splitting = Splitting(splittable(FUSED))
    assert not splitting.observe(late), "2 s a task are allowed"
