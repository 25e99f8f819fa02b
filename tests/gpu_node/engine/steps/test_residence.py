"""Which requests go over to a receiver, when, with which blocks, and how they come back."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.plan import BlockMove, StepPlan
from gpu_node.engine.steps.scheduler import Scheduler
from tests.gpu_node.bookkeeping import payload, prompt, result, scheduler, teach_short_outputs

PAGE_BLOCKS = 4
GENERATION = 3


def advance(one: Scheduler) -> StepPlan:
    """One step, and its result at once."""
    plan = one.schedule(now=0.0)
    one.check()
    if not plan.is_empty:
        one.commit(plan, result(plan))
        one.check()
    return plan


def residences(plan: StepPlan) -> list[tuple[int, bool]]:
    return [(part.sequence_id, part.is_remote) for part in plan.sequences]


def lent(num_pages: int, ratio: float = 1.0, step_tokens: int = 64) -> Scheduler:
    """With a receiver that grants pages from number 5 on."""
    one = scheduler(step_tokens=step_tokens)
    teach_short_outputs(one)
    while one.has_work:
        advance(one)
    one.residences.serve(GENERATION)
    one.residences.grant(range(5, 5 + num_pages), PAGE_BLOCKS)
    one.residences.ratio = ratio
    return one


def test_full_blocks_go_ahead_of_a_prompt_and_the_rest_follows_when_it_is_computed() -> None:
    one = lent(1, step_tokens=8)
    one.add(payload("a", prompt(13), max_tokens=4))
    plan = advance(one)
    assert (len(plan.sequences[0].token_ids), plan.sends) == (8, ())
    table = plan.sequences[0].block_table
    second = advance(one)
    assert (len(second.sequences[0].token_ids), second.sends) == (5, (BlockMove(table[0], 20), BlockMove(table[1], 21)))
    table = second.sequences[0].block_table
    third = advance(one)
    assert third.sends == (BlockMove(table[2], 22), BlockMove(table[3], 23))
    assert (residences(third)[0][1], third.sequences[0].block_table) == (True, (20, 21, 22, 23))
    assert one.blocks.num_used_blocks == 0


def test_a_share_of_the_requests_is_remote_and_stands_last() -> None:
    one = lent(4, ratio=0.5)
    for name in "abcd":
        one.add(payload(name, prompt(5, first=10 * ord(name) % 90), max_tokens=5))
    advance(one)
    plan = advance(one)
    remote = [is_remote for _, is_remote in residences(plan)]
    assert remote == [False, False, True, True]
    assert len(plan.sends) == 4


def test_who_lies_in_pages_that_are_wanted_back_goes_on_at_home() -> None:
    one = lent(2)
    one.add(payload("a", prompt(13), max_tokens=6))
    advance(one)
    assert residences(advance(one))[0][1]
    one.residences.withdraw(2)
    assert one.residences.take_returned() == [6]
    plan = advance(one)
    assert [move.remote_block for move in plan.calls_back] == [20, 21, 22, 23]
    assert (residences(plan)[0][1], one.residences.take_returned()) == (False, [5])
    while one.has_work:
        assert not any(is_remote for _, is_remote in residences(advance(one)))


def test_who_finds_no_block_at_the_receiver_comes_back_and_computes_in_the_same_step() -> None:
    one = lent(1)
    one.add(payload("a", prompt(13), max_tokens=9))
    one.add(payload("b", prompt(3), max_tokens=9))
    plans = [advance(one) for _ in range(6)]
    back = [plan for plan in plans if plan.calls_back]
    assert len(back) == 1
    assert [is_remote for _, is_remote in residences(back[0])] == [False, False]


def test_several_choices_stay_at_home() -> None:
    one = lent(4)
    one.add(payload("a", prompt(5), max_tokens=3, num_choices=2))
    while one.has_work:
        plan = advance(one)
        assert (plan.sends, any(is_remote for _, is_remote in residences(plan))) == ((), False)


def small(ratio: float) -> Scheduler:
    """With room at home for four requests of 15 tokens, and at the receiver for 16."""
    one = scheduler(num_blocks=60, block_size=1, max_model_len=15, step_tokens=64, max_num_seqs=16)
    one.residences.serve(GENERATION)
    one.residences.grant(range(16), 15)
    one.residences.ratio = ratio
    return one


@pytest.mark.parametrize(("ratio", "number"), [(0.0, 4), (0.25, 5), (0.5, 8), (0.75, 16), (1.0, 16)])
def test_room_at_a_receiver_is_room_for_more_requests_as_far_as_the_ratio_lets_them_go(
    ratio: float, number: int
) -> None:
    one = small(ratio)
    assert one.num_admittable == number
    assert one.residences.num_blocks == {0.0: 0, 0.25: 20, 0.5: 60, 0.75: 180, 1.0: 240}[ratio]
    for place in range(number):
        assert one.num_admittable == number - place
        one.add(payload(f"r{place}", prompt(2, first=5 * place), max_tokens=13))
    assert one.num_admittable == 0
    for _ in range(8):
        advance(one)  # who goes over makes room for the next
    assert (one.num_running, one.num_waiting, one.num_preemptions) == (number, 0, 0)


def test_what_is_wanted_back_or_not_served_is_no_room() -> None:
    one = small(0.5)
    one.residences.lose_all()
    assert (one.num_admittable, one.residences.num_blocks) == (4, 0)
    one.residences.serve(GENERATION)
    one.residences.withdraw(14)
    assert (one.num_admittable, one.residences.num_blocks) == (6, 30)
    one.residences.withdraw(2)
    assert (one.num_admittable, one.residences.num_blocks) == (4, 0)


def test_pages_go_back_when_the_last_step_in_flight_has_run() -> None:
    """It may still read or write there, and the receiver takes them at once."""
    one = lent(2)
    one.add(payload("a", prompt(3), max_tokens=8))
    one.add(payload("b", prompt(3, first=20), max_tokens=8))
    advance(one)
    plans = [one.schedule(now=0.0), one.schedule(now=0.0)]
    one.residences.withdraw(1)
    assert one.residences.take_returned() == []
    one.commit(plans[0], result(plans[0]))
    assert one.residences.take_returned() == []
    one.commit(plans[1], result(plans[1]))
    assert one.residences.take_returned() == [6]
