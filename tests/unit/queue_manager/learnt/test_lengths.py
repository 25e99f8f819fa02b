"""Learnt lengths of answers: exact while few, cut answers, forgetting, who speaks for whom."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.learnt.lengths import (
    ANY,
    MAX_KEYS,
    MAX_WEIGHT,
    MEMORY_REQUESTS,
    MIN_OBSERVED,
    Distribution,
    LengthKey,
    Lengths,
    LengthSketch,
    Moments,
    bin_of,
)


def sketch(*, ended: Sequence[int], cut: Sequence[int] = ()) -> LengthSketch:
    made = LengthSketch()
    for tokens in ended:
        made.observe(tokens, is_cut=False)
    for tokens in cut:
        made.observe(tokens, is_cut=True)
    return made


def approx(mean: float, square: float) -> object:
    return pytest.approx(Moments(mean, square))


# --- what a sketch says ---------------------------------------------------------------------------------------------


def test_mean_and_spread_are_exact_while_answers_are_few() -> None:
    lengths = Distribution(sketch(ended=[10] * 3 + [30]))
    assert lengths.rest(limit=1000) == approx(15, (3 * 100 + 900) / 4)


def test_no_answer_is_longer_than_its_limit() -> None:
    lengths = Distribution(sketch(ended=[10] * 3 + [30]))
    assert lengths.rest(limit=20) == approx((3 * 10 + 20) / 4, (3 * 100 + 400) / 4)
    assert lengths.rest(limit=5) == approx(5, 25)


def test_what_is_left_is_known_of_those_that_were_longer() -> None:
    lengths = Distribution(sketch(ended=[10, 20, 40]))
    assert lengths.rest(limit=1000, done=15) == approx((5 + 25) / 2, (25 + 625) / 2)
    assert lengths.rest(limit=30, done=15) == approx((5 + 15) / 2, (25 + 225) / 2)


def test_who_has_outlived_all_others_begins_anew() -> None:
    lengths = Distribution(sketch(ended=[10, 30]))
    assert lengths.rest(limit=1000, done=30) == approx(20, 500)
    assert lengths.rest(limit=45, done=30) == approx((10 + 15) / 2, (100 + 225) / 2)


def test_who_still_runs_runs_for_one_token_at_least() -> None:
    lengths = Distribution(sketch(ended=[10, 30]))
    assert lengths.rest(limit=100, done=100) == Moments(1, 1)


def test_a_cut_answer_would_have_been_longer() -> None:
    """Four of eight are cut at 20. What is behind is memoryless: (4 · 10 + 4 · 20) tokens seen / 4 ends = 30."""
    lengths = Distribution(sketch(ended=[10] * 4, cut=[20] * 4))
    assert lengths.rest(limit=20).mean == pytest.approx((10 + 20) / 2)
    assert lengths.rest(limit=1000).mean == pytest.approx((10 + (20 + 30)) / 2)


def test_cut_answers_count_among_those_that_might_have_ended_earlier() -> None:
    """Kaplan and Meier: S(10) = 1 - 4/8; of the four, two are cut at 20, so all that was left ends at 40."""
    lengths = Distribution(sketch(ended=[10] * 4 + [40] * 2, cut=[20] * 2))
    assert lengths.rest(limit=1000).mean == pytest.approx(10 / 2 + 40 / 2)


def test_when_nothing_has_ended_yet_limits_are_what_is_known() -> None:
    lengths = Distribution(sketch(ended=[], cut=[100] * 4))
    assert lengths.rest(limit=100) == Moments(100, 10_000)
    assert lengths.rest(limit=400).mean == pytest.approx(400)


def test_an_empty_answer_counts_as_one_token() -> None:
    assert Distribution(sketch(ended=[0, 10])).rest(limit=100).mean == pytest.approx(5.5)


def test_older_answers_fade_exponentially() -> None:
    made = sketch(ended=[10] * MEMORY_REQUESTS + [1000] * 100)
    share = 1 - (1 - 1 / MEMORY_REQUESTS) ** 100
    assert Distribution(made).rest(limit=5000).mean == pytest.approx(10 + share * 990)


def test_scaling_the_weights_down_changes_nothing() -> None:
    made = sketch(ended=[10] * MEMORY_REQUESTS)
    num_until_scaled = math.ceil(math.log(MAX_WEIGHT) / math.log(MEMORY_REQUESTS / (MEMORY_REQUESTS - 1)))
    for _ in range(num_until_scaled - 1):
        made.observe(50, is_cut=False)
    before = Distribution(made).rest(limit=1000).mean
    for _ in range(2):
        made.observe(50, is_cut=False)
    assert made.weight < 2
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(before, rel=1e-6)


@given(
    ended=st.lists(st.integers(0, 5000), max_size=30),
    cut=st.lists(st.integers(1, 5000), max_size=30),
    limit=st.integers(1, 6000),
    done=st.integers(0, 6000),
)
def test_moments_are_those_of_something_between_one_and_what_is_left(
    ended: list[int], cut: list[int], limit: int, done: int
) -> None:
    if not ended and not cut:
        ended = [1]
    lengths = Distribution(sketch(ended=ended, cut=cut))
    rest = lengths.rest(limit, done)
    assert 0 <= rest.mean <= max(1, limit - done) + 1e-6
    assert rest.square >= rest.mean**2 * (1 - 1e-9)
    assert lengths.rest(limit + 100, done).mean >= rest.mean - 1e-6 or done >= limit - 1


# --- who speaks for whom --------------------------------------------------------------------------------------------


def mean_of(lengths: Lengths, model: str, kind: str, tenant: str, limit: int = 100_000) -> float:
    return lengths.distribution(model, kind, tenant).rest(limit).mean


def observe(lengths: Lengths, model: str, kind: str, tenant: str, tokens: int, times: int) -> None:
    for _ in range(times):
        lengths.observe(model, kind, tenant, tokens, is_cut=False)


def test_before_any_answer_there_is_a_prior_that_limits_cap() -> None:
    lengths = Lengths({})
    assert mean_of(lengths, "a", "interactive", "t") == (16 + 64 + 256 + 1024) / 4
    assert mean_of(lengths, "a", "interactive", "t", limit=100) == (16 + 64 + 100 + 100) / 4


def test_first_answers_count_beside_the_prior() -> None:
    lengths = Lengths({})
    observe(lengths, "a", "interactive", "t", 100, times=4)
    assert mean_of(lengths, "b", "batch", "u") == pytest.approx((16 + 64 + 256 + 1024 + 4 * 100) / 8)


def test_a_coarser_key_speaks_until_a_finer_one_has_enough_answers() -> None:
    lengths = Lengths({})
    observe(lengths, "a", "interactive", "t", 100, times=MIN_OBSERVED)
    observe(lengths, "a", "interactive", "u", 20, times=MIN_OBSERVED - 1)
    pooled = (16 * 100 + 15 * 20) / 31
    assert mean_of(lengths, "a", "interactive", "t") == pytest.approx(100)
    assert mean_of(lengths, "a", "interactive", "u") == pytest.approx(pooled), "model and kind"
    assert mean_of(lengths, "a", "batch", "u") == pytest.approx(pooled), "model"
    observe(lengths, "a", "interactive", "u", 20, times=1)
    assert mean_of(lengths, "a", "interactive", "u") == pytest.approx(20)
    assert mean_of(lengths, "a", "interactive", "") == pytest.approx(60), "of all tenants together"


def test_the_tenants_heard_of_longest_ago_are_forgotten_first() -> None:
    sketches: dict[LengthKey, LengthSketch] = {}
    lengths = Lengths(sketches)
    for number in range(MAX_KEYS + 5):
        observe(lengths, "a", "interactive", f"t{number}", 50, times=1)
    assert len(sketches) == MAX_KEYS
    tenants = MAX_KEYS - 3
    assert next(key for key in sketches if key.tenant) == LengthKey("a", "interactive", f"t{MAX_KEYS + 5 - tenants}")
    coarser = {LengthKey("a", "interactive"), LengthKey("a"), ANY}
    assert coarser <= sketches.keys(), "they are heard of all the time"


def test_distributions_follow_the_sketches() -> None:
    lengths = Lengths({})
    observe(lengths, "a", "interactive", "t", 100, times=MIN_OBSERVED)
    assert mean_of(lengths, "a", "interactive", "t") == pytest.approx(100)
    observe(lengths, "a", "interactive", "t", 200, times=MIN_OBSERVED)
    assert mean_of(lengths, "a", "interactive", "t") == pytest.approx(150)


# --- answers that run -----------------------------------------------------------------------------------------------


def test_an_answer_that_runs_might_have_ended_earlier() -> None:
    """Of eight that have reached 10, four ended there: S(10) = 1/2. All that is left ends at 40."""
    made = sketch(ended=[10] * 4 + [40] * 2)
    made.look({bin_of(30): 2})
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(10 / 2 + 40 / 2)


def test_an_answer_that_runs_counts_as_half_in_its_own_bin() -> None:
    """Four end at 16 and 64 each; two more are somewhere in the bin of 16: S(16) = 1 - 4/9."""
    made = sketch(ended=[16] * 4 + [64] * 4)
    made.look({bin_of(17): 2})
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(16 * 4 / 9 + 64 * 5 / 9)


def test_answers_longer_than_all_that_ended_are_expected_to_go_on() -> None:
    """S(10) = 1 - 4/8; behind it, a memoryless length: (4 x 10 tokens that ended + 4 x 2^5.625 drawn) / 4 ends."""
    made = sketch(ended=[10] * 4)
    made.look({bin_of(50): 4})
    assert bin_of(50) == 22, "from 2^5.5 to 2^5.75 tokens"
    drawn = 2**5.625
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(10 / 2 + (10 + 10 + drawn) / 2)


def test_what_is_left_behind_the_longest_answer_is_spread_as_the_coarser_key_has_it() -> None:
    """S(10) = 1/2. Of answers in general, three in four are longer than 10: two of 40, and one of 100."""
    made = sketch(ended=[10] * 4)
    made.look({bin_of(50): 4})
    coarser = Distribution(sketch(ended=[10, 40, 40, 100]))
    longer = coarser.behind(10)
    assert [tokens for tokens, _ in longer] == [40, 100]
    assert [share for _, share in longer] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert Distribution(made, coarser).rest(limit=1000).mean == pytest.approx(10 / 2 + (40 * 2 / 3 + 100 / 3) / 2)


def test_where_the_coarser_key_has_seen_none_longer_they_are_expected_to_go_on() -> None:
    made = sketch(ended=[10] * 4)
    made.look({bin_of(50): 4})
    coarser = Distribution(sketch(ended=[10]))
    assert coarser.behind(10) == []
    assert Distribution(made, coarser).rest(limit=1000).mean == Distribution(made).rest(limit=1000).mean


def test_a_model_of_which_only_short_answers_have_ended_is_told_by_other_models() -> None:
    """Half of a's have ended, at 10; b's have ended at 10 and 70: a's others are expected at 70."""
    lengths = Lengths({ANY: LengthSketch()})
    observe(lengths, "b", "batch", "t", 10, times=MIN_OBSERVED)
    observe(lengths, "b", "batch", "t", 70, times=MIN_OBSERVED)
    observe(lengths, "a", "batch", "t", 10, times=MIN_OBSERVED)
    lengths.look("a", [("batch", "t", 30.0)] * MIN_OBSERVED)
    assert mean_of(lengths, "a", "batch", "t") == pytest.approx((10 + 70) / 2)


def test_tokens_drawn_before_the_memory_are_not_seen_again() -> None:
    """Half end at 10, half are cut at 50; behind it (10 + 50) tokens seen / end, whatever runs in a steady state."""
    made = LengthSketch()
    running = {bin_of(8): 50, bin_of(32): 50}
    for _ in range(10 * MEMORY_REQUESTS // 2):
        made.look(running)
        made.observe(10, is_cut=False)
        made.observe(50, is_cut=True)
    made.look(running)
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(10 / 2 + (50 + 60) / 2, rel=0.01)


def test_who_looks_again_counts_nobody_twice() -> None:
    made = sketch(ended=[10] * 4 + [40] * 2)
    made.look({bin_of(10): 2})
    made.look({bin_of(30): 2})
    once = sketch(ended=[10] * 4 + [40] * 2)
    once.look({bin_of(30): 2})
    assert made == once


def test_a_steady_state_is_told_by_those_that_end_alone() -> None:
    """As many run at each age as ever: the faded memory of them takes back what those of now add."""
    made = LengthSketch()
    running = {bin_of(8): 50, bin_of(32): 50}
    num_rounds = 10 * MEMORY_REQUESTS // 2
    for _ in range(num_rounds):
        made.look(running)
        made.observe(10, is_cut=False)
        made.observe(50, is_cut=False)
    made.look(running)
    assert Distribution(made).rest(limit=1000).mean == pytest.approx(30, rel=0.01)


def test_only_answers_of_the_model_that_is_looked_at_are_meant() -> None:
    lengths = Lengths({})
    for model in ("a", "aa"):
        for tokens in [10] * MIN_OBSERVED + [40] * MIN_OBSERVED:
            lengths.observe(model, "batch", "t", tokens, is_cut=False)
    lengths.look("a", [("batch", "t", 30.0)] * 2 * MIN_OBSERVED)
    means = [lengths.distribution(model, "batch", "t").rest(limit=1000).mean for model in ("a", "aa")]
    assert means == [pytest.approx(10 / 4 + 40 * 3 / 4), pytest.approx(25)]
    lengths.look("a", [])
    assert lengths.distribution("a", "batch", "t").rest(limit=1000).mean == pytest.approx(25)
