"""What an order of groups on one node costs, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from services.scheduler.placement import LATE_GROWTH_S, LATE_WEIGHT, PRIOR_SWAP_S, QueueCost, late_penalty_s, queue_cost
from shared.batching import PRIOR_TOKENS_PER_S
from tests.unit.scheduler.problems import load, node


def test_an_empty_queue_costs_nothing() -> None:
    assert queue_cost(node(), [], 0.0) == QueueCost(late_s=0.0, wait_s=0.0, num_swaps=0, penalty_s=0.0)


def test_a_group_waits_for_those_ahead_of_it_to_drain() -> None:
    queue = [load("g0", drain_s=2), load("g1", drain_s=5), load("g2")]
    assert queue_cost(node(), queue, 0.0).wait_s == 0 + 2 + (2 + 5)


def test_every_request_of_a_group_waits() -> None:
    queue = [load("g0", drain_s=2), load("g1", num_requests=4)]
    assert queue_cost(node(), queue, 0.0).wait_s == 4 * 2


def test_a_swap_delays_its_group_and_all_behind_it() -> None:
    queue = [load("g0", "b"), load("g1", "b"), load("g2", "a")]
    #        0 + 3            3 + 1            4 + 3 + 1
    cost = queue_cost(node(model="a", swap_s=3), queue, 0.0)
    assert cost == QueueCost(late_s=0.0, wait_s=3 + 4 + 8, num_swaps=2, penalty_s=0.0)


def test_groups_of_the_loaded_model_need_no_swap() -> None:
    assert queue_cost(node(model="a"), [load("g0", "a"), load("g1", "a")], 0.0).num_swaps == 0


def test_a_group_is_late_by_what_it_starts_after_its_deadline_once_for_every_request() -> None:
    queue = [load("g0", drain_s=6, due_s=100), load("g1", num_requests=2, due_s=104)]
    # g0 starts at 100, g1 at 106
    assert queue_cost(node(), queue, now_s=100.0).late_s == 2 * 2


def test_a_deadline_that_is_met_earns_nothing() -> None:
    assert queue_cost(node(), [load("g0", due_s=50)], 0.0).late_s == 0


def test_lateness_weighs_more_than_waiting() -> None:
    cost = queue_cost(node(), [load("g0", drain_s=6), load("g1", due_s=5)], 0.0)
    assert cost.total == pytest.approx(LATE_WEIGHT * (1 + 1 / LATE_GROWTH_S) + 6)


def test_lateness_grows_faster_than_linearly() -> None:
    assert late_penalty_s(0) == 0
    assert late_penalty_s(LATE_GROWTH_S) == 2 * LATE_GROWTH_S
    assert late_penalty_s(10 * LATE_GROWTH_S) == 110 * LATE_GROWTH_S


def test_a_node_that_has_measured_nothing_is_taken_to_be_like_others() -> None:
    fresh = node(tokens_per_s=0.0, swap_s=0.0)
    queue = [load("g0", "b", drain_s=PRIOR_TOKENS_PER_S / 10), load("g1", "b")]
    assert queue_cost(fresh, queue, 0.0).wait_s == pytest.approx(PRIOR_SWAP_S + (PRIOR_SWAP_S + 1))
