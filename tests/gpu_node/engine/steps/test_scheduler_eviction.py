"""Requests that are taken out and come back, worked by hand: blocks of 4 tokens."""

from __future__ import annotations

from gpu_node.engine.border.plan import Restore
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.requests.image import BlockFormat, RequestState, SequenceState
from gpu_node.engine.steps.batch.resumption import HeldState
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Payload
from tests.gpu_node.bookkeeping import payload, prompt, scheduler, shape, step, teach_short_outputs
from tests.gpu_node.engine.steps.test_scheduler_swap import each_goes_on, under_pressure, while_a_beam_waits

FORMAT = BlockFormat("m", block_size=4, block_bytes=1024, kv_layout="")


def evict(one: Scheduler, request_id: str) -> HeldState:
    held = one.held_state(request_id)
    assert held is not None
    assert one.abort(request_id)
    one.check()
    return held


def decoding(request: Payload, num_steps: int = 3) -> Scheduler:
    one = scheduler(num_blocks=12, step_tokens=16)
    assert one.add(request) == []
    for _ in range(num_steps):
        step(one)
    return one


def test_what_is_kept_of_a_request_and_where_it_comes_back_to() -> None:
    request = payload("a", prompt(6), max_tokens=8)
    one = decoding(request)
    held = evict(one, "a")
    sequence = SequenceState(0, [7, 7, 7], 8, [0, 1], [], 0.0, [])
    state = RequestState("a", 0, FORMAT, 2, [sequence], 6, True, [], num_cached_tokens=0)
    assert held == HeldState(state, (0, 1))
    assert (state.kv_tokens, state.num_bytes) == (8, 2048)
    assert (one.num_running, one.blocks.num_used_blocks) == (0, 0)
    one.add(payload("b", prompt(40, first=50), max_tokens=1))  # takes all blocks but two: what was cached is gone
    for _ in range(3):
        step(one)
    assert one.add(request, state) == []
    one.check()
    plan = one.schedule(now=0.0)
    one.check()
    (restore,) = plan.restores
    assert (restore.request_id, len(restore.blocks)) == ("a", len(restore.places))
    assert shape(plan) == [(2, 8, 1, True)], "the newest token alone is computed"
    assert plan.sequences[0].token_ids == (7,)
    assert plan.sequences[0].draws[0].position == 3


def test_what_is_cached_still_is_not_written() -> None:
    request = payload("a", prompt(6), max_tokens=8)
    one = decoding(request)
    state = evict(one, "a").state
    one.add(request, state)
    plan = one.schedule(now=0.0)
    assert plan.restores == (Restore("a", (), ()),)
    assert plan.sequences[0].block_table == (0, 1, 2)
    one.check()


def test_what_is_not_full_is_written_always() -> None:
    request = payload("a", prompt(5), max_tokens=8)
    one = decoding(request)
    one.add(request, evict(one, "a").state)
    plan = one.schedule(now=0.0)
    assert plan.restores == (Restore("a", (1,), (1,)),)
    assert shape(plan) == [(1, 7, 1, True)]


def test_choices_share_in_the_image_what_they_shared() -> None:
    request = payload("a", prompt(6), max_tokens=8, num_choices=2)
    one = decoding(request, num_steps=2)
    held = evict(one, "a")
    assert held.device_blocks == (0, 2, 1)  # the second choice went on in the block that the prompt had begun
    assert [sequence.places for sequence in held.state.sequences] == [[0, 1], [0, 2]]
    assert held.state.kv_tokens == 4 + 3 + 3
    one.add(request, held.state)
    plan = one.schedule(now=0.0)
    one.check()
    first, second = (part.block_table for part in plan.sequences)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert one.blocks.num_used_blocks == 3
    assert plan.restores == (Restore("a", (1, 2), (first[1], second[1])),)


def test_a_prefill_goes_on_where_it_was() -> None:
    request = payload("a", prompt(30), max_tokens=4, num_choices=2)
    one = decoding(request, num_steps=1)
    held = evict(one, "a")
    assert [sequence.num_computed_tokens for sequence in held.state.sequences] == [16, 0]
    assert not held.state.is_forked
    one.add(request, held.state)
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(2, 16, 14, True)]
    assert len(plan.sequences[0].draws) == 2


def test_nothing_is_kept_of_what_has_computed_nothing() -> None:
    one = scheduler()
    one.add(payload("a", prompt(6)))
    assert one.held_state("a") is None


def test_a_swapped_out_request_is_taken_from_host_memory() -> None:
    one = under_pressure(num_host_blocks=2)
    step(one)
    held = evict(one, "b")
    assert (held.device_blocks, held.host_blocks) == ((), (0, 1))
    assert held.state.sequences[0].num_computed_tokens == 8
    assert one.num_waiting == 0
    one.add(payload("b", prompt(7, first=50), max_tokens=4), held.state)
    one.abort("a")
    plan = one.schedule(now=0.0)
    assert plan.sequences[0].token_ids == (7,)
    one.check()


def test_a_beam_keeps_the_continuations_that_it_waits_with() -> None:
    one = while_a_beam_waits()
    held = evict(one, "d")
    assert [len(beam.continuations) for beam in held.state.sequences] == [3, 0]
    one.add(payload("d", prompt(4, first=50), max_tokens=16, num_candidates=2, is_beam=True), held.state)
    for expected in ([(70, 5, 1, True)], [(69, 6, 1, True), (70, 6, 1, True)]):
        plan = one.schedule(now=0.0)
        one.check()
        assert shape(plan) == expected
        one.commit(plan, each_goes_on(plan))
        one.check()


def test_who_comes_back_waits_until_its_blocks_are_free_and_holds_up_those_behind_it() -> None:
    request = payload("a", prompt(18, first=50), max_tokens=3)
    one = scheduler(num_blocks=6, step_tokens=20)
    teach_short_outputs(one)
    one.add(request)
    step(one)
    state = evict(one, "a").state
    one.add(payload("b", prompt(6), max_tokens=3))
    step(one)
    one.add(request, state)
    one.add(payload("c", prompt(3, first=70), max_tokens=1))
    assert [parts for parts, _ in (step(one), step(one))] == [[(65, 6, 1, True)], [(65, 7, 1, True)]]
    assert step(one)[0] == [(66, 18, 1, True)]
    assert (one.num_running, one.num_waiting) == (1, 1)


def test_an_evicted_request_that_is_preempted_later_is_computed_again() -> None:
    request = payload("a", prompt(7), max_tokens=9)
    one = decoding(request, num_steps=2)
    state = evict(one, "a").state
    one.add(request, state)
    step(one)
    assert one.num_running == 1
    held = evict(one, "a")
    assert held.state.sequences[0].output_token_ids == [7, 7, 7]
    assert held.state.sequences[0].num_computed_tokens == 9


def test_what_an_image_saves_is_counted() -> None:
    request = payload("a", prompt(6), max_tokens=8)
    one = decoding(request)
    state = evict(one, "a").state
    assert one.counts == Counts(prefix_queried_tokens=6, first_queried_tokens=6)
    one.add(request, state)
    one.schedule(now=0.0)
    assert one.counts == Counts(
        prefix_queried_tokens=6, first_queried_tokens=6, restored_tokens=8, evicted=TierCounts(num_restored=1)
    )
    assert state.kv_tokens == 8
