"""What an order of groups costs, against numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.solving.problem.cost import (
    LATE_STEP_S,
    LATE_WEIGHT,
    late_penalty_s,
    late_pieces,
    late_request_s,
    least_cost,
    num_swaps,
    queue_cost,
    total_cost,
)
from services.scheduler.solving.problem.instance import Instance
from tests.unit.scheduler.instances import Load, Place, every_order, instance, instances


def cost(queue: list[int], loads: list[Load], node: Place = Place()) -> float:  # noqa: B008 (frozen)
    return queue_cost(instance([node], loads), 0, queue)


def test_an_empty_queue_costs_nothing() -> None:
    assert cost([], []) == 0


def test_a_group_waits_for_the_work_ahead_and_is_done_after_its_own() -> None:
    # done at 2, at 2 + 5 and at 2 + 5 + 1
    assert cost([0, 1, 2], [Load(work_s=2), Load(work_s=5), Load(work_s=1)]) == 2 + 7 + 8


def test_every_request_of_a_group_waits() -> None:
    assert cost([0, 1], [Load(work_s=2), Load(work_s=1, waits=4)]) == 2 + 4 * 3


def test_a_swap_delays_its_group_and_all_behind_it() -> None:
    loads = [Load("b"), Load("b"), Load("a")]
    #                                 3 + 1   + 1   + 3 + 1
    assert cost([0, 1, 2], loads) == 4 + 5 + 9
    assert num_swaps(instance([Place()], loads), [[0, 1, 2]]) == 2


def test_a_swap_waits_until_the_last_request_has_ended() -> None:
    # the first group starts its last member at 2 - 1.5, which takes 4 s; by its work the node would be free at 2
    loads = [Load("a", work_s=2, tail_s=4), Load("b")]
    assert cost([0, 1], loads, Place(overlap_s=1.5)) == 4.5 + (4.5 + 3 + 0)


def test_a_group_of_the_same_model_starts_when_a_batch_is_left() -> None:
    loads = [Load(work_s=6), Load(work_s=6)]
    # the last of the first group starts at 6 - 2, that of the second at 12 - 2
    assert cost([0, 1], loads, Place(overlap_s=2)) == 4 + 10


def test_a_load_that_has_begun_ends_first_and_another_model_is_loaded_behind_it() -> None:
    loads, loading = [Load("a"), Load("b")], Place("a", ready_s=2)
    assert cost([0], loads, loading) == 2 + 1
    assert cost([1], loads, loading) == 2 + 3 + 1
    #                                      2 + 1, then 3 + 1
    assert cost([0, 1], loads, loading) == 3 + 7
    #                                      2 + 3 + 1, then back: 3 + 1
    assert cost([1, 0], loads, loading) == 6 + 10
    assert num_swaps(instance([loading], loads), [[0, 1]]) == 1, "that which has begun is not asked for"


def test_nobody_starts_before_the_model_is_there_however_large_the_batch() -> None:
    loads, loading = [Load(), Load(due_s=1.5)], Place("a", ready_s=2, overlap_s=9)
    # both start at 2, so the second is half a second late
    assert cost([0, 1], loads, loading) == 2 + (LATE_WEIGHT * 0.5 + 2)
    assert late_request_s(instance([loading], loads), [[0, 1]]) == 0.5


def test_lateness_counts_for_the_mean_member_and_weighs_more_than_waiting() -> None:
    loads = [Load(work_s=6), Load(work_s=4, due_s=7, waits=2)]
    # first start 6, last start 10, mean 8
    assert cost([0, 1], loads) == 6 + 2 * (LATE_WEIGHT * 1 + 10)
    assert late_request_s(instance([Place()], loads), [[0, 1]]) == 2 * 1


def test_a_deadline_that_is_met_earns_nothing() -> None:
    assert cost([0], [Load(due_s=50)]) == cost([0], [Load(due_s=1e6)])


def test_the_price_of_a_second_doubles_with_lateness() -> None:
    step = LATE_STEP_S
    assert late_penalty_s(-1) == late_penalty_s(0) == 0
    assert late_penalty_s(step) == step
    assert late_penalty_s(3 * step) == step + 2 * 2 * step
    assert late_penalty_s(7 * step) == step + 2 * 2 * step + 4 * 4 * step


@given(st.floats(-100, 1e6))
def test_the_penalty_is_the_highest_of_its_lines(late_s: float) -> None:
    highest = max(slope * late_s + offset for slope, offset in late_pieces(1e6))
    assert late_penalty_s(late_s) == pytest.approx(max(0.0, highest))


def test_who_runs_and_is_left_alone_costs_nothing_but_those_behind_wait_for_it() -> None:
    loads = [Load(work_s=5, waits=0, runs=3, home=0, rest_s=5), Load(work_s=1)]
    assert cost([0, 1], loads) == 6


def test_while_the_batch_has_room_nobody_waits_for_what_runs() -> None:
    loads = [Load(work_s=5, waits=0, runs=3, home=0, rest_s=5), Load(work_s=1)]
    assert cost([0, 1], loads, Place(is_full=False, overlap_s=5)) == 1
    assert cost([1, 0], loads, Place(is_full=False, overlap_s=5)) == 0, "and nobody is evicted"


def test_a_group_that_overtakes_a_running_one_waits_for_its_eviction_and_the_evicted_for_their_turn() -> None:
    loads = [Load(work_s=5, waits=0, runs=3, home=0, rest_s=5, evict_s=0.5), Load(work_s=1)]
    #             0.5 + 1  , then three requests go on: 0.5 to bring their KV back, 5 to their end
    assert cost([1, 0], loads) == 1.5 + 3 * (1.5 + 0.5 + 5)


def test_another_model_claims_the_place_of_all_that_run_behind_it_though_there_is_room() -> None:
    loads = [Load(work_s=5, waits=0, runs=1, home=0, rest_s=5, evict_s=0.5), Load("b", work_s=1)]
    #             0.5 + 3 + 1, then back: 3 for the model, 0.5 for the KV, 5 to the end
    assert cost([1, 0], loads, Place(is_full=False)) == 4.5 + (4.5 + 3 + 0.5 + 5)


def test_a_running_group_with_waiting_members_claims_the_places_of_those_behind_it() -> None:
    loads = [
        Load(work_s=4, waits=1, runs=1, home=0, rest_s=2),
        Load(work_s=5, waits=0, runs=1, home=0, rest_s=5, evict_s=0.5),
    ]
    assert cost([1, 0], loads) == 9
    assert cost([0, 1], loads) == 4.5 + (4.5 + 0.5 + 5)


def test_a_running_group_elsewhere_waits_for_its_transfer() -> None:
    problem = instance(
        [Place(), Place()],
        [Load(work_s=5, waits=0, runs=2, home=0, evict_s=0.5, move_s=1.5), Load(work_s=1)],
    )
    #                                    n0: 0.5 + 1,    n1: two requests, 1.5 + 5
    assert total_cost(problem, [[1], [0]]) == 1.5 + 2 * 6.5


def test_a_group_that_is_passed_over_becomes_the_dearest() -> None:
    """One request that is late against 32 that are always a little late: the price of its next second wins."""

    def is_first(overdue_s: float) -> bool:
        common, rare = Load(work_s=5, due_s=0, waits=32), Load("b", due_s=-overdue_s)
        return cost([1, 0], [common, rare]) < cost([0, 1], [common, rare])

    assert [is_first(overdue_s) for overdue_s in (0, 30, 300, 3_000, 30_000)] == [False, False, False, True, True]


@given(instances(max_groups=4, max_nodes=2))
def test_no_order_costs_less_than_the_bound(problem: Instance) -> None:
    bound = least_cost(problem)
    for queues in every_order(problem):
        assert total_cost(problem, queues) >= bound * (1 - 1e-9)
