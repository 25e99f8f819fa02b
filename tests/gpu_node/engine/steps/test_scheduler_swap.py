"""Preempted requests that wait in host memory, worked by hand: blocks of 4 tokens, 5 on the device."""

from __future__ import annotations

from gpu_node.engine.border.plan import BlockSwap, StepPlan, StepResult
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.preemption import KvFate, SwapIfRoom
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.bookkeeping import STEP_S, payload, prompt, result, scheduler, shape, step, teach_short_outputs


def under_pressure(num_host_blocks: int) -> Scheduler:
    """Two requests of two blocks each have drawn two tokens each; one block is left, and both need one more."""
    one = scheduler(
        num_blocks=5, step_tokens=16, policy=SwapIfRoom(), lazy_swaps=False, num_host_blocks=num_host_blocks
    )
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
    one.blocks.forget_cached()
    plan = one.schedule(now=0.0)
    one.check()
    assert (shape(plan), len(plan.swaps_in)) == ([], 2)
    one.commit(plan, result(plan))
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(66, 0, 3, True), (65, 8, 1, True)]
    assert plan.sequences[1].token_ids == (7,)
    one.commit(plan, result(plan))
    one.check()


def test_what_is_on_the_device_still_does_not_come_back_and_is_computed_on_at_once() -> None:
    """The two blocks of b are full, and a has taken a free one."""
    one = under_pressure(num_host_blocks=2)
    one.add(payload("c", prompt(3), max_tokens=1))
    step(one)
    one.abort("a")
    plan = one.schedule(now=0.0)
    one.check()
    assert (shape(plan), plan.swaps_in) == ([(66, 0, 3, True), (65, 8, 1, True)], ())
    assert one.counts.swapped == TierCounts(out_bytes=2048, num_restored=1)
    assert not one.blocks.is_swapped_out(65)


def test_without_room_in_host_memory_it_is_recomputed() -> None:
    one = under_pressure(num_host_blocks=1)
    before = one.counts
    plan = one.schedule(now=0.0)
    assert (shape(plan), plan.swaps_out) == ([(64, 8, 1, True)], ())
    assert one.counts - before == Counts(num_preemptions=1, num_recomputed=1, swapped=TierCounts(num_refused=1))
    one.check()


def test_what_is_swapped_is_counted_in_both_directions() -> None:
    one = under_pressure(num_host_blocks=2)
    before = one.counts
    plan = one.schedule(now=0.0)  # two blocks of 1024 bytes go
    assert one.counts - before == Counts(num_preemptions=1, swapped=TierCounts(out_bytes=2048))
    one.commit(plan, result(plan))
    one.abort("a")
    one.blocks.forget_cached()
    before = one.counts
    step(one)
    assert one.counts - before == Counts(swapped=TierCounts(in_bytes=2048, num_restored=1))


def test_a_swapped_out_request_that_is_aborted_leaves_host_memory() -> None:
    one = under_pressure(num_host_blocks=2)
    step(one)
    assert one.num_waiting == 1
    assert one.abort("b")
    one.check()
    while one.has_work:
        assert [part for part, *_ in step(one)[0]] == [64]


def test_a_request_that_is_aborted_on_its_way_back_leaves_both_memories() -> None:
    one = under_pressure(num_host_blocks=2)
    step(one)
    one.abort("a")
    one.blocks.forget_cached()
    coming_back = one.schedule(now=0.0)
    assert len(coming_back.swaps_in) == 2
    ahead = one.schedule(now=0.0)
    assert shape(ahead) == [(65, 8, 1, True)]
    one.abort("b")
    one.check()
    assert one.blocks.num_used_blocks == 0
    # its blocks are another's in the next step, which runs behind those that bring them back and write to them
    one.add(payload("c", prompt(16, first=70), max_tokens=1))
    assert one.commit(coming_back, result(coming_back)) == []
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(66, 0, 16, True)]
    assert one.commit(ahead, result(ahead)) == []
    assert [chunk.is_last for chunk in one.commit(plan, result(plan))] == [True]
    one.check()


def test_a_request_that_is_aborted_while_its_last_step_and_its_swap_are_in_flight_leaves_both_memories() -> None:
    one = scheduler(num_blocks=5, step_tokens=16, policy=SwapIfRoom(), lazy_swaps=False, num_host_blocks=2)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=9))
    one.add(payload("b", prompt(7, first=50), max_tokens=9))
    first = one.schedule(now=0.0)
    computing = one.schedule(now=0.0)
    one.commit(first, result(first))
    going = one.schedule(now=0.0)
    assert (shape(computing), len(going.swaps_out)) == ([(64, 7, 1, True), (65, 7, 1, True)], 2)
    one.abort("b")
    one.check()
    assert not one.blocks.is_swapped_out(65)
    assert [chunk.request_id for chunk in one.commit(computing, result(computing))] == ["a"]
    assert [chunk.request_id for chunk in one.commit(going, result(going))] == ["a"]
    one.check()


def test_what_a_step_in_flight_would_have_drawn_is_drawn_again_from_the_row_before() -> None:
    one = scheduler(num_blocks=5, step_tokens=16, policy=SwapIfRoom(), lazy_swaps=False, num_host_blocks=4)
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
    one.blocks.forget_cached()
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
    one.blocks.forget_cached()
    plan = one.schedule(now=0.0)
    assert (shape(plan), plan.is_empty, len(plan.swaps_in)) == ([], False, 2)
    assert one.commit(plan, result(plan)) == []
    assert step(one)[0] == [(65, 8, 1, True)]


def test_what_the_draft_would_have_computed_is_computed_when_it_is_back() -> None:
    one = scheduler(
        num_blocks=13, max_num_seqs=8, max_model_len=32, policy=SwapIfRoom(), lazy_swaps=False, num_host_blocks=3
    )
    teach_short_outputs(one)
    for name, num_prompt_tokens, first in (("a", 8, 20), ("b", 6, 29), ("c", 6, 38)):
        one.add(payload(name, prompt(num_prompt_tokens, first), max_tokens=20))
    resumed = [Output(prompt(2, first=60)), Output(prompt(2, first=73))]
    one.add(Payload("d", 1, "g", "m", prompt(8, first=50), Sampling(max_tokens=20, num_choices=2), resumed))
    for _ in range(4):
        step(one)
    assert step(one)[0] == [(67, 6, 2, False), (64, 11, 1, True), (65, 8, 1, True), (66, 7, 1, True)]
    # three blocks are left: b and c take two, the first choice of d the last for its two tokens, the second has none
    plan = one.schedule(now=0.0)
    one.check()
    assert (shape(plan), len(plan.swaps_out)) == ([(64, 12, 1, True), (65, 9, 1, True), (66, 8, 1, True)], 3)
    one.commit(plan, result(plan))
    for name in "abc":
        one.abort(name)
    assert len(one.schedule(now=0.0).swaps_in) == 1, "two full blocks are on the device still"
    assert shape(one.schedule(now=0.0)) == [(67, 8, 2, True), (68, 8, 2, True)]
    one.check()


class SwapAfterTheFirst(SwapIfRoom):
    """As if host memory were full at the first preemption."""

    num_asked = 0

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        self.num_asked += 1
        return KvFate.RECOMPUTE if self.num_asked == 1 else super().fate(request, blocks)


def each_goes_on(plan: StepPlan) -> StepResult:
    """The two likeliest beginnings of a beam search stay far ahead of all that forks off them."""
    draws = [draw for part in plan.sequences for draw in part.draws]
    tops = {draw.sequence_id: [(7, -0.1), (8, -50.0 if draw.position else -0.2), (9, -60.0)] for draw in draws}
    return StepResult(
        dict.fromkeys(tops, 7), STEP_S, logprobs={one: TokenLogprob(-0.1, top) for one, top in tops.items()}
    )


def while_a_beam_waits() -> Scheduler:
    """Request d is swapped out; its first beam knows what may follow, its second has a token to go."""
    one = scheduler(
        41, 1, 32, step_tokens=5, max_num_seqs=8, policy=SwapAfterTheFirst(), lazy_swaps=False, num_host_blocks=20
    )
    teach_short_outputs(one)
    for name, num_prompt_tokens, max_tokens, first in (("a", 5, 20, 20), ("b", 7, 15, 29), ("c", 7, 19, 38)):
        one.add(payload(name, prompt(num_prompt_tokens, first), max_tokens))
    one.add(payload("d", prompt(4, first=50), max_tokens=16, num_candidates=2, is_beam=True))
    plans: list[StepPlan] = []
    while not (plans and plans[-1].swaps_out):
        plans.append(one.schedule(now=0.0))
        one.check()
        chunks = one.commit(plans[-1], each_goes_on(plans[-1]))
        if any((chunk.request_id, chunk.start) == ("a", 9) for chunk in chunks):
            one.abort("a")  # d finds room again; had a ended, longer outputs would be expected, and d would wait
        one.check()
    assert one.num_preemptions == 2  # recomputed once
    assert shape(plans[-2])[:: len(shape(plans[-2])) - 1] == [(67, 4, 2, True), (68, 4, 1, False)]
    for name in "abc":
        one.abort(name)
    one.blocks.forget_cached()
    return one


def test_a_beam_that_waits_to_be_chosen_is_not_computed_again() -> None:
    """Its last block is full and published, so it could not be written again."""
    one = while_a_beam_waits()
    plan = one.schedule(now=0.0)
    assert (shape(plan), len(plan.swaps_in)) == ([], 7)
    one.commit(plan, each_goes_on(plan))
    for expected in ([(68, 5, 1, True)], [(67, 6, 1, True), (68, 6, 1, True)]):
        plan = one.schedule(now=0.0)
        one.check()
        assert shape(plan) == expected
        one.commit(plan, each_goes_on(plan))
        one.check()
