"""Preempted requests that wait in host memory, worked by hand: blocks of 4 tokens, 5 on the device."""

from __future__ import annotations

from gpu_node.engine.plan import BlockSwap
from gpu_node.engine.preemption import SwapIfRoom
from gpu_node.engine.scheduler import Scheduler
from tests.engine.bookkeeping import payload, prompt, result, scheduler, shape, step, teach_short_outputs


def under_pressure(num_host_blocks: int) -> Scheduler:
    """Two requests of two blocks each have drawn two tokens each; one block is left, and both need one more."""
    one = scheduler(num_blocks=5, step_tokens=16, policy=SwapIfRoom(), num_host_blocks=num_host_blocks)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=4))
    one.add(payload("b", prompt(7, first=50), max_tokens=4))
    for _ in range(2):
        assert [part for part, *_ in step(one)[0]] == [64, 65]
    return one


def test_who_is_swapped_out_comes_back_first_and_is_computed_on_in_the_next_step() -> None:
    one = under_pressure(num_host_blocks=2)
    one.add(payload("c", prompt(3), max_tokens=1))
    plan = one.schedule(now=0.0)
    one.check()
    assert shape(plan) == [(64, 8, 1, True)]
    assert plan.swaps_out == (BlockSwap(2, 0), BlockSwap(3, 1))
    assert (one.num_running, one.num_waiting, one.num_preemptions) == (1, 2, 1)
    one.commit(plan, result(plan))
    assert step(one)[1][-1].is_last  # b does not fit beside a as far as both will grow; c waits behind it
    plan = one.schedule(now=0.0)
    one.check()
    assert (shape(plan), len(plan.swaps_in)) == ([], 2)
    one.commit(plan, result(plan))
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(65, 8, 1, True), (66, 0, 3, True)]
    assert plan.sequences[0].token_ids == (7,)
    one.commit(plan, result(plan))
    one.check()


def test_without_room_in_host_memory_it_is_recomputed() -> None:
    one = under_pressure(num_host_blocks=1)
    plan = one.schedule(now=0.0)
    assert (shape(plan), plan.swaps_out, one.num_preemptions) == ([(64, 8, 1, True)], (), 1)
    one.check()


def test_a_swapped_out_request_that_is_aborted_leaves_host_memory() -> None:
    one = under_pressure(num_host_blocks=2)
    step(one)
    assert one.num_waiting == 1
    assert one.abort("b")
    one.check()
    while one.has_work:
        assert [part for part, *_ in step(one)[0]] == [64]


def test_what_a_step_in_flight_would_have_drawn_is_drawn_again_from_the_row_before() -> None:
    one = scheduler(num_blocks=5, step_tokens=16, policy=SwapIfRoom(), num_host_blocks=4)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=9))
    one.add(payload("b", prompt(7, first=50), max_tokens=9))
    first, second = one.schedule(now=0.0), one.schedule(now=0.0)
    one.commit(first, result(first))
    third = one.schedule(now=0.0)  # b has one token, and its second is in flight
    assert (shape(third), len(third.swaps_out)) == ([(64, 8, 1, True)], 2)
    assert [chunk.request_id for chunk in one.commit(second, result(second))] == ["a"]
    one.commit(third, result(third))
    one.abort("a")
    fourth = one.schedule(now=0.0)
    one.check()
    assert len(fourth.swaps_in) == 2
    one.commit(fourth, result(fourth))
    fifth = one.schedule(now=0.0)
    assert shape(fifth) == [(65, 7, 1, True)]
    assert fifth.sequences[0].draws[0].position == 1


def test_a_plan_of_swaps_alone_has_no_rows() -> None:
    one = under_pressure(num_host_blocks=2)
    step(one)
    one.abort("a")
    plan = one.schedule(now=0.0)
    assert (shape(plan), plan.is_empty, len(plan.swaps_in)) == ([], False, 2)
    assert one.commit(plan, result(plan)) == []
    assert step(one)[0] == [(65, 8, 1, True)]
