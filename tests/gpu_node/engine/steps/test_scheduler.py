"""Golden cases: blocks of 4 tokens, 8 tokens a step if not said; parts are (sequence, start, tokens, draws)."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.plan import StepResult
from gpu_node.engine.requests.chunk import OutputChunk
from shared.messages.requests.payload import Payload
from tests.gpu_node.bookkeeping import (
    EOS,
    STEP_S,
    OldestFirst,
    payload,
    prompt,
    result,
    scheduler,
    shape,
    step,
    teach_short_outputs,
)


def test_prefill_then_decode_until_max_tokens() -> None:
    one = scheduler()
    assert one.add(payload("a", prompt(5), max_tokens=2)) == []
    assert step(one) == ([(0, 0, 5, True)], [OutputChunk("a", 0, 0, [7], cached_tokens=0)])
    assert step(one) == ([(0, 5, 1, True)], [OutputChunk("a", 0, 1, [7], "length", is_last=True)])
    assert not one.has_work
    assert one.blocks.num_free_blocks == 100


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    one = scheduler()
    one.add(payload("a", prompt(19), max_tokens=1))
    assert [step(one)[0] for _ in range(3)] == [[(0, 0, 8, False)], [(0, 8, 8, False)], [(0, 16, 3, True)]]


def test_decodes_take_their_tokens_first_and_stand_behind_prefill_that_takes_what_is_left() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=9))
    one.add(payload("b", prompt(12, first=40), max_tokens=9))
    assert step(one)[0] == [(0, 0, 3, True), (1, 0, 5, False)]
    assert step(one)[0] == [(1, 5, 7, True), (0, 3, 1, True)]
    one.add(payload("c", prompt(9, first=70), max_tokens=9))
    assert step(one)[0] == [(2, 0, 6, False), (0, 4, 1, True), (1, 12, 1, True)]
    assert step(one)[0] == [(2, 6, 3, True), (0, 5, 1, True), (1, 13, 1, True)]


def test_a_plan_carries_tokens_blocks_and_draw() -> None:
    one = scheduler()
    one.add(payload("a", prompt(6), seed=5))
    plan = one.schedule(now=0.0)
    (part,) = plan.sequences
    assert part.token_ids == (0, 1, 2, 3, 4, 5)
    assert part.block_table == (0, 1)
    (draw,) = part.draws
    assert (draw.position, draw.sampling.seed) == (0, 5)
    one.commit(plan, result(plan))
    (part,) = one.schedule(now=0.0).sequences
    assert part.token_ids == (7,)
    assert part.draws[0].position == 1


def test_no_more_than_max_num_seqs_run_and_the_others_wait_in_order() -> None:
    one = scheduler(max_num_seqs=2)
    for name in "abc":
        one.add(payload(name, prompt(2, first=ord(name)), max_tokens=2))
    assert step(one)[0] == [(0, 0, 2, True), (1, 0, 2, True)]
    assert (one.num_running, one.num_waiting) == (2, 1)
    step(one)
    assert step(one)[0] == [(2, 0, 2, True)]


def test_a_cached_prefix_is_not_computed_again() -> None:
    one = scheduler()
    one.add(payload("a", prompt(8), max_tokens=1))
    step(one)
    one.add(payload("b", [*prompt(8), 50], max_tokens=1))
    assert step(one)[0] == [(1, 8, 1, True)]


def test_a_resumed_request_goes_on_at_the_next_index() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=4, output=[10, 11]))
    plan = one.schedule(now=0.0)
    assert shape(plan) == [(0, 0, 5, True)]
    assert plan.sequences[0].draws[0].position == 2
    assert one.commit(plan, result(plan)) == [OutputChunk("a", 0, 2, [7])]
    assert step(one)[1] == [OutputChunk("a", 0, 3, [7], "length", is_last=True)]


@pytest.mark.parametrize(
    ("output", "max_tokens", "reason"), [([10, 11], 2, "length"), ([10, EOS], 9, "stop"), ([10, 5], 9, "stop")]
)
def test_a_request_that_was_complete_already_ends_at_once(output: list[int], max_tokens: int, reason: str) -> None:
    one = scheduler()
    ended = one.add(payload("a", prompt(3), max_tokens, output, stop_token_ids=[5]))
    assert ended == [OutputChunk("a", 0, 2, [], reason, is_last=True)]
    assert not one.has_work


def test_stop_tokens_end_a_request_and_stay_in_its_output() -> None:
    one = scheduler()
    one.add(payload("eos", prompt(2)))
    assert step(one, token=EOS)[1] == [OutputChunk("eos", 0, 0, [EOS], "stop", is_last=True, cached_tokens=0)]
    one.add(payload("stop", prompt(2), stop_token_ids=[5]))
    assert step(one, token=5)[1] == [OutputChunk("stop", 0, 0, [5], "stop", is_last=True, cached_tokens=0)]
    one.add(payload("on", prompt(2), ignore_eos=True))
    assert step(one, token=EOS)[1] == [OutputChunk("on", 0, 0, [EOS], cached_tokens=0)]


def test_the_model_length_ends_a_request() -> None:
    one = scheduler(max_model_len=16)
    one.add(payload("a", prompt(14), max_tokens=50))
    step(one)
    assert step(one)[1] == [OutputChunk("a", 0, 0, [7], cached_tokens=0)]
    assert step(one)[1] == [OutputChunk("a", 0, 1, [7], "length", is_last=True)]


def test_memory_pressure_preempts_the_newest_and_resumes_it_first() -> None:
    # 5 blocks. Outputs have been short so far, so two requests that may need 4 each are both admitted.
    one = scheduler(num_blocks=5, step_tokens=16)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8))
    one.add(payload("c", prompt(7, first=80), max_tokens=1))
    assert step(one)[0] == [(64, 0, 7, True), (65, 0, 7, True)]  # 2 blocks each; c does not fit beside them
    assert step(one)[0] == [(64, 7, 1, True), (65, 7, 1, True)]
    assert step(one)[0] == [(64, 8, 1, True)]  # a takes the last block, b has none and gives way
    assert (one.num_running, one.num_waiting, one.num_preemptions) == (1, 2, 1)
    # b's blocks are still cached, and it comes before c; of its 9 tokens the last is computed, 8 lie there
    assert one.blocks.match([*prompt(7, first=50), 7, 7]) == [2, 3]
    admitted: list[int] = []
    while one.has_work:
        admitted += [part for part, *_ in step(one)[0] if part not in admitted]
    assert admitted == [64, 65, 66]


def test_a_preempted_request_recomputes_and_its_tokens_go_on() -> None:
    one = scheduler(num_blocks=5, step_tokens=16)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8))
    indexes: dict[str, list[int]] = {"a": [], "b": []}
    while one.has_work:
        for chunk in step(one)[1]:
            indexes[chunk.request_id].append(chunk.start)
    assert one.num_preemptions > 0
    assert indexes == {"a": list(range(8)), "b": list(range(8))}


def test_with_no_experience_the_worst_case_is_reserved_so_nothing_is_preempted() -> None:
    one = scheduler(num_blocks=5, step_tokens=16)
    one.add(payload("a", prompt(7), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8))
    assert step(one)[0] == [(0, 0, 7, True)]
    while one.has_work:
        step(one)
    assert one.num_preemptions == 0


def test_the_policy_chooses_the_victim() -> None:
    one = scheduler(num_blocks=5, step_tokens=16, policy=OldestFirst())
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8))
    for _ in range(2):
        assert [part for part, *_ in step(one)[0]] == [64, 65]
    assert step(one)[0] == [(65, 8, 1, True)]  # a asks for a block first, and gives way itself


def test_a_request_is_admitted_when_it_fits_thanks_to_a_shared_prefix() -> None:
    one = scheduler(num_blocks=6, step_tokens=16)
    one.add(payload("a", [*prompt(12), 50], max_tokens=3))
    step(one)
    one.add(payload("other", [*prompt(12, first=30), 51], max_tokens=3))
    assert step(one)[0] == [(0, 13, 1, True)]  # 4 blocks for each are too many ...
    one.abort("other")
    one.add(payload("alike", [*prompt(12), 51], max_tokens=3))
    assert step(one)[0] == [(0, 14, 1, True), (2, 12, 1, True)]  # ... unless 3 of them are the same


def test_an_aborted_request_is_gone_waiting_or_running() -> None:
    one = scheduler(max_num_seqs=1)
    one.add(payload("a", prompt(5)))
    one.add(payload("b", prompt(5)))
    step(one)
    assert one.abort("a")
    assert one.abort("b")
    assert not one.abort("b")
    one.check()
    assert not one.has_work


def test_an_abort_during_a_step_drops_the_result_even_if_the_id_comes_back() -> None:
    one = scheduler()
    one.add(payload("a", prompt(5)))
    plan = one.schedule(now=0.0)
    one.abort("a")
    one.add(payload("a", prompt(3, first=50)))
    assert one.commit(plan, result(plan)) == []
    one.check()
    assert step(one) == ([(1, 0, 3, True)], [OutputChunk("a", 0, 0, [7], cached_tokens=0)])


def test_a_failed_draw_ends_only_its_own_request() -> None:
    one = scheduler()
    one.add(payload("a", prompt(2)))
    one.add(payload("b", prompt(2, first=50)))
    plan = one.schedule(now=0.0)
    chunks = one.commit(plan, StepResult({1: 7}, STEP_S, errors={0: "broken"}))
    assert chunks == [
        OutputChunk("a", 0, 0, [], "error", "broken", is_last=True),
        OutputChunk("b", 0, 0, [7], cached_tokens=0),
    ]
    one.check()


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (payload("a", []), "no tokens"),
        (payload("a", prompt(64)), "64 tokens leave no room"),
        (payload("a", [0, 100]), "token id 100"),
        (payload("a", [0, -1]), "token id -1"),
        (payload("a", prompt(3), max_tokens=40), "42 tokens need 11 KV blocks; the engine has 10"),
        (payload("a", prompt(3), max_tokens=0), "max_tokens is 0"),
        (payload("a", prompt(3), temperature=float("nan")), "temperature is nan"),
        (payload("a", prompt(3), top_k=-1), "top_k is -1"),
        (payload("a", prompt(3), top_p=0.0), "top_p is 0.0"),
        (payload("a", prompt(3), min_p=1.5), "min_p is 1.5"),
    ],
)
def test_what_can_never_run_is_refused_at_once(refused: Payload, words: str) -> None:
    one = scheduler(num_blocks=10)
    (ended,) = one.add(refused)
    assert ended.finish_reason == "refused"
    assert words in ended.error
    assert not one.has_work


def test_no_more_is_asked_for_than_can_run() -> None:
    one = scheduler(num_blocks=32, max_num_seqs=8)
    assert one.num_admittable == 2  # nothing known: requests of 64 tokens, 16 blocks
    one.add(payload("a", prompt(7), max_tokens=6))
    assert one.num_admittable == 7  # 12 slots a request, 3 blocks: places are the limit now
    for number in range(7):
        one.add(payload(f"{number}", prompt(7, first=number * 9), max_tokens=6))
    assert one.num_admittable == 0
