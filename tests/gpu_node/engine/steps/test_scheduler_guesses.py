"""Steps with guessed tokens, by hand: what is planned, what of it is kept, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_node.engine.border.plan import DRAWN, ScheduledSequence, StepPlan, StepResult
from gpu_node.engine.measures.yield_learner import LEAST_STEPS
from gpu_node.engine.steps.scheduler import Scheduler
from tests.gpu_node.bookkeeping import STEP_S, payload, scheduler
from tests.gpu_node.integer_grammar import CONSTRAINT, IntegerGrammar

PROMPT = [1, 2, 3, 4, 5, 1, 2]
"""If a 3 comes next, 4, 5, 1 and 2 are guessed behind it."""


def drawn(plan: StepPlan, *tokens: int) -> StepResult:
    """One token for each draw, in their order."""
    ids = [draw.sequence_id for part in plan.sequences for draw in part.draws]
    return StepResult(dict(zip(ids, tokens, strict=True)), STEP_S)


def begun(**given: Any) -> Scheduler:
    """The prompt of "a" is computed, and a 3 was drawn behind it."""
    sampling = {name: given.pop(name) for name in list(given) if name in SAMPLING}
    one = scheduler(step_tokens=64, **({"max_draft_tokens": 4} | given))
    assert one.add(payload("a", PROMPT, **({"max_tokens": 20} | sampling))) == []
    plan = one.schedule(now=0.0)
    one.commit(plan, drawn(plan, *[3] * len(plan.sequences[0].draws)))
    one.check()
    return one


SAMPLING = ("max_tokens", "stop_token_ids", "frequency_penalty", "num_choices")


def only(plan: StepPlan) -> ScheduledSequence:
    (part,) = plan.sequences
    return part


def test_guesses_are_rows_behind_the_last_token_and_each_draws() -> None:
    part = only(begun().schedule(now=0.0))
    assert (part.token_ids, part.start, part.num_draft_tokens) == ((3, 4, 5, 1, 2), 7, 4)
    assert [(draw.position, draw.num_draft_tokens) for draw in part.draws] == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert part.draws[0].sequence_id == part.sequence_id
    assert len({draw.sequence_id for draw in part.draws}) == 5
    assert len(part.block_table) == 3  # of four tokens each, for twelve


def test_those_that_are_drawn_are_kept_and_one_token_more() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 4, 5, 9, 2, 7))  # the third guess was 1
    one.check()
    assert (chunk.start, chunk.token_ids, chunk.finish_reason) == (1, [4, 5, 9], "")
    assert (one.counts.num_draft_tokens, one.counts.num_accepted_tokens) == (4, 2)
    assert one.blocks.num_used_blocks == 3  # ten tokens are computed
    part = only(one.schedule(now=0.0))
    assert (part.token_ids, part.start, part.num_draft_tokens) == ((9,), 10, 0)


def test_a_guess_that_fails_at_once_leaves_what_a_step_without_brings() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 8, 5, 1, 2, 3))
    one.check()
    assert chunk.token_ids == [8]
    assert one.blocks.num_used_blocks == 2, "the block that guesses had is free: eight tokens are computed"
    assert only(one.schedule(now=0.0)).start == 8


def test_all_hold() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 4, 5, 1, 2, 3))
    assert chunk.token_ids == [4, 5, 1, 2, 3]
    part = only(one.schedule(now=0.0))
    assert (part.token_ids, part.start) == ((3, 4, 5, 1, 2), 12)


def test_full_blocks_of_what_was_kept_are_offered_and_no_others() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    one.commit(plan, drawn(plan, 4, 5, 1, 7, 7))  # eleven tokens are computed
    known = [*PROMPT, 3, 4, 5, 1]
    assert len(one.blocks.match([*known, 7, 7])) == 2
    plan = one.schedule(now=0.0)
    one.commit(plan, drawn(plan, 9, *[0] * only(plan).num_draft_tokens))
    assert len(one.blocks.match([*known, 7, 9])) == 3
    assert len(one.blocks.match([*known, 2, 9])) == 2, "what was guessed in vain is nowhere"


def test_an_end_in_the_midst_of_what_holds() -> None:
    one = begun(stop_token_ids=[5])
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 4, 5, 1, 2, 3))
    assert (chunk.token_ids, chunk.finish_reason, chunk.is_last) == ([4, 5], "stop", True)
    assert (one.counts.num_draft_tokens, one.counts.num_accepted_tokens) == (4, 2)
    assert not one.has_work
    assert one.blocks.num_used_blocks == 0
    assert len(one.blocks.match([*PROMPT, 3, 4, 5, 1, 2])) == 2


def test_no_more_is_guessed_than_may_come() -> None:
    one = begun(max_tokens=4)  # of which one is there, so that two guesses and the token behind them are the last
    plan = one.schedule(now=0.0)
    assert only(plan).token_ids == (3, 4, 5)
    (chunk,) = one.commit(plan, drawn(plan, 4, 5, 1))
    assert (chunk.token_ids, chunk.finish_reason) == ([4, 5, 1], "length")
    assert only(begun(max_tokens=2).schedule(now=0.0)).num_draft_tokens == 0


def test_penalties_count_the_guesses_before_a_draw() -> None:
    draws = only(begun(frequency_penalty=1.0).schedule(now=0.0)).draws
    assert [list(draw.output_token_ids) for draw in draws] == [[3], [3, 4], [3, 4, 5], [3, 4, 5, 1], [3, 4, 5, 1, 2]]
    assert all(list(draw.prompt_token_ids) == PROMPT for draw in draws)


def test_nothing_is_planned_behind_guesses_before_they_are_known() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    assert one.schedule(now=0.0).is_empty
    one.commit(plan, drawn(plan, 4, 5, 1, 2, 3))
    assert not one.schedule(now=0.0).is_empty


def test_others_go_on_meanwhile() -> None:
    one = begun()
    one.add(payload("b", [9, 8, 7], 20))
    first = one.schedule(now=0.0)
    assert [(part.sequence_id, part.num_draft_tokens) for part in first.sequences] == [(0, 4), (1, 0)]
    second = one.schedule(now=0.0)
    assert [part.token_ids for part in second.sequences] == [(DRAWN,)]
    one.check()


def test_a_step_in_flight_is_worth_waiting_for_where_guesses_are_expected_behind_it() -> None:
    one = scheduler(step_tokens=64, max_draft_tokens=4)
    one.add(payload("a", [1, 2, 3, 4, 5, 1], 20))
    first, second = one.schedule(now=0.0), one.schedule(now=0.0)
    assert not one.is_worth_waiting, "nothing is known yet"
    one.commit(first, drawn(first, 2))
    assert only(second).token_ids == (DRAWN,)
    assert one.is_worth_waiting, "a 3 is guessed to come of it, and 4, 5, 1, 2 behind that"
    one.commit(second, drawn(second, 3))
    assert not one.is_worth_waiting, "nothing is in flight"
    plan = one.schedule(now=0.0)
    assert only(plan).token_ids == (3, 4, 5, 1, 2)
    assert not one.is_worth_waiting, "what comes behind guesses is waited for anyway"


def test_no_step_is_waited_for_without_a_guess() -> None:
    one = scheduler(step_tokens=64, max_draft_tokens=4)
    one.add(payload("a", [1, 2, 3, 4, 5, 1], 20))
    first, _ = one.schedule(now=0.0), one.schedule(now=0.0)
    one.commit(first, drawn(first, 9))
    assert not one.is_worth_waiting


def test_guesses_take_blocks_that_nobody_else_wants_in_the_step() -> None:
    # seven computed tokens lie in two blocks; the eighth has room there, the guesses behind it take a third
    assert only(begun(num_blocks=3, max_tokens=5).schedule(now=0.0)).num_draft_tokens == 3
    one = scheduler(num_blocks=2, block_size=4, max_model_len=8, step_tokens=64, max_draft_tokens=4)
    one.add(payload("a", [1, 2, 1], 5))
    plan = one.schedule(now=0.0)
    one.commit(plan, drawn(plan, 2))
    assert only(one.schedule(now=0.0)).num_draft_tokens == 3  # the fifth to the seventh of eight tokens


def test_each_choice_has_guesses_of_its_own() -> None:
    one = begun(num_choices=2)
    plan = one.schedule(now=0.0)
    assert [part.token_ids for part in plan.sequences] == [(3, 4, 5, 1, 2), (3, 4, 5, 1, 2)]
    first, second = one.commit(plan, drawn(plan, 4, 5, 1, 2, 3, 6, 0, 0, 0, 0))
    assert (first.choice, first.token_ids, second.choice, second.token_ids) == (0, [4, 5, 1, 2, 3], 1, [6])
    one.check()


def test_an_error_behind_guesses_that_hold_comes_behind_their_tokens() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    ids = [draw.sequence_id for draw in only(plan).draws]
    result = StepResult({ids[0]: 4, ids[2]: 1, ids[3]: 2, ids[4]: 3}, STEP_S, errors={ids[1]: "not finite"})
    told, error = one.commit(plan, result)
    assert (told.token_ids, told.finish_reason) == ([4], "")
    assert (error.start, error.error, error.is_last) == (2, "not finite", True)
    assert not one.has_work


def test_an_error_behind_a_guess_that_fails_is_nobodys() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    ids = [draw.sequence_id for draw in only(plan).draws]
    result = StepResult({ids[0]: 9, ids[2]: 1, ids[3]: 2, ids[4]: 3}, STEP_S, errors={ids[1]: "not finite"})
    (told,) = one.commit(plan, result)
    assert (told.token_ids, told.error) == ([9], "")
    one.check()


def test_abort_frees_what_guesses_hold() -> None:
    one = begun()
    plan = one.schedule(now=0.0)
    assert one.abort("a")
    one.check()
    assert one.commit(plan, drawn(plan, 4, 5, 1, 2, 3)) == []
    assert one.blocks.num_used_blocks == 0


def test_without_speculation_nothing_is_guessed() -> None:
    assert only(begun(max_draft_tokens=0).schedule(now=0.0)).num_draft_tokens == 0


def test_what_sequences_have_of_steps_and_get_from_them_is_told() -> None:
    """Behind 1, the cycle 2, 3, 4, 5, 1 is drawn: four guesses hold, and a fifth token comes with them."""
    one = scheduler(step_tokens=64, max_draft_tokens=4, max_model_len=1000, num_blocks=250)
    one.add(payload("a", PROMPT, max_tokens=400))
    plan, text = one.schedule(now=0.0), [*PROMPT]
    steps: list[tuple[int, int]] = []
    while not plan.is_empty:
        (part,) = plan.sequences
        tokens = [(len(text) + number) % 5 + 1 for number in range(len(part.draws))]
        assert one.decode_yield is None or len(steps) >= LEAST_STEPS
        (chunk,) = one.commit(plan, drawn(plan, *tokens))
        text += chunk.token_ids
        if chunk.start:  # the first token comes behind the prompt, whatever is guessed
            steps.append((len(part.draws), len(chunk.token_ids)))
        plan = one.schedule(now=0.0)
    rows, kept = (sum(column) / len(steps) for column in zip(*steps, strict=True))
    assert one.decode_yield is not None
    assert (one.decode_yield.rows, one.decode_yield.tokens) == pytest.approx((rows, kept), rel=0.01)
    assert kept > 4


def test_where_nothing_is_guessed_nothing_is_told() -> None:
    one = scheduler(step_tokens=64)
    one.add(payload("a", PROMPT, max_tokens=100))
    while not (plan := one.schedule(now=0.0)).is_empty:
        one.commit(plan, drawn(plan, 3))
    assert one.decode_yield is None


# --- structured output ----------------------------------------------------------------------------------------------


def constrained(one: Scheduler, **sampling: Any) -> Scheduler:
    """Of "a", the client has a 0, and a 3 was drawn behind it; their sum is odd, so a 2 is called for."""
    asked = payload("a", [1, 2], 20, output=[0], constraint=CONSTRAINT, **sampling)
    assert one.add(asked, grammar=IntegerGrammar()) == []
    plan = one.schedule(now=0.0)
    one.commit(plan, drawn(plan, 3))
    one.check()
    return one


def words_in(mask: bytes) -> set[int]:
    return {word for word in range(8 * len(mask)) if mask[word // 8] >> word % 8 & 1}


def test_a_guess_of_structured_output_comes_with_what_may_follow_it() -> None:
    """The sum of all words must not leave 1 when it is divided by 3; an end may come behind two words.

    A sixth word would end the output, so it is not guessed.
    """
    part = only(constrained(scheduler(step_tokens=64, max_structured_tokens=4)).schedule(now=0.0))
    assert (part.token_ids, part.start, part.num_draft_tokens) == ((3, 2, 0, 0), 3, 3)
    masks = [words_in(draw.allowed) for draw in part.draws]
    assert masks == [{0, 2, 3, 5, 6, 99}, *[{0, 1, 3, 4, 6, 99}] * 3]
    assert [draw.position for draw in part.draws] == [2, 3, 4, 5]
    assert not any(draw.is_mask_late for draw in part.draws)


def test_where_a_guess_of_structured_output_fails_the_matcher_stands_behind_what_was_drawn() -> None:
    one = constrained(scheduler(step_tokens=64, max_structured_tokens=4))
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 2, 6, 0, 0))  # the second guess was 0
    one.check()
    assert (chunk.start, chunk.token_ids) == (2, [2, 6])
    counts = one.counts
    assert (counts.num_draft_tokens, counts.num_accepted_tokens) == (3, 1)
    assert (counts.num_structured_drafts, counts.num_structured_accepted) == (3, 1)
    part = only(one.schedule(now=0.0))
    assert part.token_ids[0] == 6
    assert words_in(part.draws[0].allowed) == {0, 1, 3, 4, 6, 99}, "the sum is 11"


def test_an_end_is_drawn_in_the_place_of_a_guess() -> None:
    one = constrained(scheduler(step_tokens=64, max_structured_tokens=4))
    plan = one.schedule(now=0.0)
    (chunk,) = one.commit(plan, drawn(plan, 2, 99, 0, 0))
    assert (chunk.token_ids, chunk.finish_reason) == ([2, 99], "stop")
    assert not one.has_work


def test_a_language_that_fails_behind_guesses_leaves_the_tokens_before() -> None:
    """As a step a token would have told them: first the tokens, then the error."""
    one = constrained(scheduler(step_tokens=64, max_structured_tokens=4), num_logprobs=0)
    (request,) = one._roster.running.values()
    request.sequences[0].matcher.fails_behind = 4  # type: ignore[union-attr]
    plan = one.schedule(now=0.0)
    told, error = one.commit(plan, drawn(plan, 2, 0))  # no guess leads there
    assert (told.start, told.token_ids, told.finish_reason) == (2, [2], "")
    assert (error.start, error.error, error.is_last) == (3, "too complex", True)
    assert not one.has_work


def test_structured_output_is_not_guessed_where_devices_check_other_guesses_alone() -> None:
    part = only(constrained(scheduler(step_tokens=64, max_draft_tokens=4)).schedule(now=0.0))
    assert (part.token_ids, part.num_draft_tokens) == ((3,), 0)


def test_a_step_in_flight_is_waited_for_where_structured_guesses_are_expected_behind_it() -> None:
    one = scheduler(step_tokens=64, max_structured_tokens=4, has_late_masks=True)
    one.add(payload("a", [1, 2], 20, constraint=CONSTRAINT), grammar=IntegerGrammar())
    first, second = one.schedule(now=0.0), one.schedule(now=0.0)
    assert only(second).draws[0].is_mask_late
    assert not one.is_worth_waiting, "nothing is known of the language yet, and it forces nothing here"
    one.commit(first, drawn(first, 5))
    assert one.is_worth_waiting, "a 0 is called for in flight, and another behind it"
    one.commit(second, drawn(second, 0))
    assert only(one.schedule(now=0.0)).num_draft_tokens > 0
