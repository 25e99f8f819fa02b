"""Several sequences a request, worked by hand: blocks of 4 tokens, 8 tokens a step; parts are (sequence, start, tokens,
draws)."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.plan import BlockCopy, StepPlan, StepResult
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Output, Payload
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.bookkeeping import EOS, STEP_S, payload, prompt, result, scheduler, shape, step, teach_short_outputs


def draws(plan: StepPlan) -> list[tuple[int, int, int, int]]:
    """(row's sequence, drawn for, choice, position) of each draw."""
    return [
        (part.sequence_id, draw.sequence_id, draw.choice, draw.position)
        for part in plan.sequences
        for draw in part.draws
    ]


def ranked(plan: StepPlan, drawn: dict[int, tuple[int, float]]) -> StepResult:
    """By sequence id, a token and its logprob."""
    assert {draw.sequence_id for part in plan.sequences for draw in part.draws} == drawn.keys()
    return StepResult(
        {sequence_id: token for sequence_id, (token, _) in drawn.items()},
        STEP_S,
        logprobs={sequence_id: TokenLogprob(logprob, []) for sequence_id, (_, logprob) in drawn.items()},
    )


def continued(plan: StepPlan, tops: dict[int, list[tuple[int, float]]]) -> StepResult:
    """By sequence id, what may follow a beam."""
    drawn = {sequence_id: (top[0][0], TokenLogprob(top[0][1], top)) for sequence_id, top in tops.items()}
    assert {draw.sequence_id for part in plan.sequences for draw in part.draws} == drawn.keys()
    return StepResult(
        {sequence_id: token for sequence_id, (token, _) in drawn.items()},
        STEP_S,
        logprobs={sequence_id: logprob for sequence_id, (_, logprob) in drawn.items()},
    )


def used_blocks(one: Scheduler) -> int:
    return one.blocks.num_used_blocks


def test_all_choices_are_drawn_from_the_last_row_of_the_prompt_and_share_its_blocks() -> None:
    one = scheduler()
    one.add(payload("a", prompt(6), num_choices=3))
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(0, 0, 6, True)]
    assert draws(plan) == [(0, 0, 0, 0), (0, 1, 1, 0), (0, 2, 2, 0)]
    one.check()
    chunks = one.commit(plan, StepResult({0: 7, 1: 8, 2: 9}, STEP_S))
    assert chunks == [
        OutputChunk("a", 0, 0, [7], cached_tokens=0),
        OutputChunk("a", 0, 0, [8], choice=1),
        OutputChunk("a", 0, 0, [9], choice=2),
    ]
    assert used_blocks(one) == 2
    plan = one.schedule(now=0.0)
    assert [part.token_ids for part in plan.sequences] == [(7,), (8,), (9,)]
    assert [part.block_table for part in plan.sequences] == [(0, 2), (0, 3), (0, 1)]
    assert plan.copies == (BlockCopy(1, 2), BlockCopy(1, 3))  # whoever writes last has the block for itself
    one.check()


def test_a_choice_ends_alone_and_the_request_with_the_last() -> None:
    one = scheduler()
    one.add(payload("a", prompt(4), max_tokens=3, num_choices=2))
    step(one)
    plan = one.schedule(now=0.0)
    chunks = one.commit(plan, StepResult({0: EOS, 1: 8}, STEP_S))
    assert chunks == [OutputChunk("a", 0, 1, [EOS], "stop"), OutputChunk("a", 0, 1, [8], choice=1)]
    assert used_blocks(one) == 2
    assert step(one) == ([(1, 5, 1, True)], [OutputChunk("a", 0, 2, [7], "length", choice=1, is_last=True)])
    assert (one.has_work, used_blocks(one)) == (False, 0)


def test_an_error_ends_all_choices() -> None:
    one = scheduler()
    one.add(payload("a", prompt(4), num_choices=3))
    plan = one.schedule(now=0.0)
    chunks = one.commit(plan, StepResult({0: 7, 2: 7}, STEP_S, errors={1: "broken"}))
    assert chunks == [
        OutputChunk("a", 0, 0, [7], cached_tokens=0),
        OutputChunk("a", 0, 0, [], "error", "broken", choice=1, is_last=True),
    ]
    assert (one.has_work, used_blocks(one)) == (False, 0)
    one.check()


def test_choices_take_places_and_their_decodes_go_together() -> None:
    one = scheduler(step_tokens=4, max_num_seqs=4)
    for name in "abc":
        one.add(payload(name, prompt(2, first=ord(name)), max_tokens=9, num_choices=1 if name == "b" else 3))
    assert step(one)[0] == [(0, 0, 2, True), (3, 0, 2, True)]
    assert (one.num_running, one.num_waiting) == (2, 1)
    assert step(one)[0] == [(0, 2, 1, True), (1, 2, 1, True), (2, 2, 1, True), (3, 2, 1, True)]
    one.abort("b")
    one.add(payload("d", prompt(2), max_tokens=9))
    assert step(one)[0] == [(0, 3, 1, True), (1, 3, 1, True), (2, 3, 1, True)]  # c waits, and d behind it
    one.abort("a")
    assert step(one)[0] == [(4, 0, 2, True), (7, 0, 2, True)]


def test_resumed_choices_share_what_they_have_in_common_and_those_that_ended_do_not_run() -> None:
    one = scheduler(step_tokens=16)
    outputs = [Output([20, 21, 22]), Output([20], "stop"), Output([20, 21, 30, 31])]
    resumed = Payload("a", 1, "g", "m", prompt(3), payload("a", [0], 9, num_choices=3).sampling, outputs)
    assert one.add(resumed) == []
    assert step(one)[0] == [(0, 0, 5, False)]
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(1, 5, 2, True), (0, 5, 1, True)]
    assert draws(plan) == [(1, 1, 2, 4), (0, 0, 0, 3)]
    assert one.commit(plan, result(plan)) == [OutputChunk("a", 1, 3, [7]), OutputChunk("a", 1, 4, [7], choice=2)]


def test_choices_that_were_complete_are_told_at_once() -> None:
    one = scheduler()
    sampling = payload("a", [0], 2, num_choices=3).sampling
    outputs = [Output([20, 21]), Output([20], "stop"), Output([EOS])]
    assert one.add(Payload("a", 1, "g", "m", prompt(3), sampling, outputs)) == [
        OutputChunk("a", 1, 2, [], "length"),
        OutputChunk("a", 1, 1, [], "stop", choice=2, is_last=True),
    ]
    ended = [Output([20, 21], "length"), Output([20], "stop"), Output([EOS], "stop")]
    assert one.add(Payload("a", 1, "g", "m", prompt(3), sampling, ended)) == [
        OutputChunk("a", 1, 2, [], "length", is_last=True)
    ]
    assert not one.has_work


def test_the_best_candidates_come_at_the_end_best_first() -> None:
    one = scheduler()
    one.add(payload("a", prompt(4), max_tokens=2, num_candidates=3, num_choices=2, num_logprobs=0))
    plan = one.schedule(now=0.0)
    assert [draw.num_top for part in plan.sequences for draw in part.draws] == [0, 0, 0]
    assert one.commit(plan, ranked(plan, {0: (7, -1.0), 1: (EOS, -0.75), 2: (8, -0.5)})) == []
    plan = one.schedule(now=0.0)
    two = [TokenLogprob(-0.5, []), TokenLogprob(-0.75, [])]
    # mean logprobs: -1.5, -0.75, -0.625
    assert one.commit(plan, ranked(plan, {0: (7, -2.0), 2: (9, -0.75)})) == [
        OutputChunk("a", 0, 0, [8, 9], "length", logprobs=two, cached_tokens=0),
        OutputChunk("a", 0, 0, [EOS], "stop", choice=1, logprobs=[TokenLogprob(-0.75, [])], is_last=True),
    ]
    assert not one.has_work


def test_beams_fork_fall_out_and_end() -> None:
    one = scheduler()
    one.add(payload("a", prompt(4), max_tokens=9, num_candidates=2, is_beam=True, length_penalty=0.0))
    plan = one.schedule(now=0.0)
    assert draws(plan) == [(0, 0, 0, 0)]
    assert plan.sequences[0].draws[0].num_top == 3  # both beams can go on, even if one of the three ends
    assert one.commit(plan, continued(plan, {0: [(10, -1.0), (11, -1.5), (12, -3.0)]})) == []
    one.check()
    plan = one.schedule(now=0.0)
    assert [(part.sequence_id, part.token_ids) for part in plan.sequences] == [(0, (10,)), (1, (11,))]
    # both go on from 11; 10 falls out and its blocks are free
    tops = {0: [(13, -3.0), (14, -4.0), (15, -5.0)], 1: [(16, -0.5), (17, -0.75), (18, -5.0)]}
    assert one.commit(plan, continued(plan, tops)) == []
    one.check()
    plan = one.schedule(now=0.0)
    assert [(part.sequence_id, part.token_ids) for part in plan.sequences] == [(1, (16,)), (2, (17,))]
    assert len(plan.copies) == 1
    # one ends: -2.5; what is left cannot beat the second before it is full
    tops = {1: [(EOS, -0.5), (20, -9.0), (21, -9.5)], 2: [(22, -1.0), (EOS, -3.0), (23, -9.0)]}
    assert one.commit(plan, continued(plan, tops)) == []
    plan = one.schedule(now=0.0)
    tops = {2: [(EOS, -0.25), (24, -9.0), (25, -9.0)], 1: [(26, -9.0), (27, -9.0), (28, -9.0)]}
    chunks = one.commit(plan, continued(plan, tops))
    assert chunks == [OutputChunk("a", 0, 0, [11, 16, EOS], "stop", is_last=True, cached_tokens=0)]
    one.check()
    assert (one.has_work, used_blocks(one)) == (False, 0)


def test_a_preempted_request_gives_up_all_its_sequences_and_comes_back_with_what_they_share() -> None:
    one = scheduler(num_blocks=7, step_tokens=16)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8, num_choices=2))
    assert step(one)[0] == [(64, 0, 7, True), (65, 0, 7, True)]
    assert step(one)[0] == [(64, 7, 1, True), (65, 7, 1, True), (66, 7, 1, True)]
    # two blocks are left; a takes one, the first choice of b the other, the second has none: both give way
    assert step(one)[0] == [(64, 8, 1, True)]
    assert (one.num_preemptions, one.num_waiting) == (1, 1)
    while one.num_running == 1 and one.num_waiting:
        assert {part for part, *_ in step(one)[0]} <= {64, 65}
    # both choices have drawn 7, 7: all nine tokens are common, and drawn on from in one row
    plan = one.schedule(now=0.0)
    assert draws(plan)[-2:] == [(65, 65, 0, 2), (65, 66, 1, 2)]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ({"num_choices": 5}, "5 sequences can never run at once: max_num_seqs is 4"),
        ({"num_choices": 0}, "0 choices of 1 candidates; at least 1 of each"),
        ({"num_choices": 3, "num_candidates": 2, "is_beam": True}, "3 choices cannot be the best of 2 candidates"),
        ({"num_choices": 4, "max_tokens": 9}, "4 sequences of 18 tokens need 14 KV blocks; the engine has 10"),
        ({"num_candidates": 3, "is_beam": True, "stop_token_ids": list(range(97))}, "the 101 most likely tokens"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": 10.5}, "length_penalty is 10.5; it must be between -10.0 and 10.0"),
    ],
)
def test_what_can_never_run_is_refused(refused: dict[str, object], words: str) -> None:
    one = scheduler(num_blocks=10)
    (ended,) = one.add(payload("a", prompt(10), **({"max_tokens": 4} | refused)))  # type: ignore[arg-type]
    assert (ended.finish_reason, ended.is_last) == ("refused", True)
    assert words in ended.error
    assert not one.has_work


def test_more_sequences_than_a_step_has_rows_are_refused() -> None:
    (ended,) = scheduler(step_tokens=2).add(payload("a", prompt(3), num_choices=3))
    assert "3 sequences do not fit into one step: step_tokens is 2" in ended.error
