"""How many tokens are guessed, by hand and beside all choices that there are."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.engine.steps.guesses.draft_choice import LEAST_GAIN, DraftCandidate, PlainStep, choose_drafts

ALONE = PlainStep(num_draws=1, step_s=1.0, wait_s=0.0)


def test_as_many_as_bring_more_than_the_step_does() -> None:
    # 1 token in 1 s; with .8 in .2 s: 1.8 / 1.2 = 1.5 a second; with .4 more: 2.2 / 1.4 = 1.57; .2 / .2 s is less
    assert choose_drafts(ALONE, [DraftCandidate([0.8, 0.4, 0.2], 0.2)], most=8) == [2]


def test_none_where_rows_are_dearer_than_what_they_bring() -> None:
    assert choose_drafts(ALONE, [DraftCandidate([0.8, 0.7], 0.9)], most=8) == [0]


def test_none_for_a_gain_that_nobody_would_notice() -> None:
    # 1.5 tokens in 1.45 s are 3 % more a second
    assert LEAST_GAIN == 0.05
    assert choose_drafts(ALONE, [DraftCandidate([0.5], 0.45)], most=8) == [0]
    assert choose_drafts(ALONE, [DraftCandidate([0.5], 0.40)], most=8) == [1]


def test_the_wait_for_the_host_is_paid_once() -> None:
    waits = PlainStep(num_draws=1, step_s=1.0, wait_s=0.5)
    # alone, .5 is not worth it: 1.5 / 1.55; with .9 before it the wait is paid anyway
    assert choose_drafts(waits, [DraftCandidate([0.5], 0.05)], most=8) == [0]
    assert choose_drafts(waits, [DraftCandidate([0.9, 0.5], 0.05)], most=8) == [2]


def test_a_large_batch_has_none_where_one_sequence_alone_has() -> None:
    candidate = DraftCandidate([0.5, 0.25], 0.1)
    assert choose_drafts(ALONE, [candidate], most=8) == [2]
    # 16 tokens in 2 s are 8 a second: a row of .1 s has to bring .8
    assert choose_drafts(PlainStep(16, 2.0, 0.0), [candidate] * 16, most=99) == [0] * 16


def test_the_surest_come_first_where_there_is_room_for_few() -> None:
    candidates = [DraftCandidate([0.6, 0.5], 0.1), DraftCandidate([0.9, 0.8, 0.55], 0.1), DraftCandidate([], 0.1)]
    assert choose_drafts(PlainStep(3, 1.5, 0.0), candidates, most=3) == [1, 2, 0]
    assert choose_drafts(PlainStep(3, 1.5, 0.0), candidates, most=0) == [0, 0, 0]


def test_rows_that_cost_nothing_are_all_taken() -> None:
    assert choose_drafts(ALONE, [DraftCandidate([0.4, 0.2, 0.1], 0.0)], most=8) == [3]


def test_nobody_decodes() -> None:
    assert choose_drafts(PlainStep(0, 0.0, 0.0), [DraftCandidate([0.9], 0.1)], most=8) == [0]


@st.composite
def candidate(draw: st.DrawFn) -> DraftCandidate:
    rates = draw(st.lists(st.integers(1, 9), max_size=3))
    chances, chance = [], 1.0
    for rate in rates:
        chance *= rate / 10
        chances.append(chance)
    return DraftCandidate(chances, draw(st.integers(1, 12)) / 20)


@given(st.lists(candidate(), min_size=1, max_size=3), st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.6]))
def test_no_other_choice_brings_more_tokens_a_second(
    candidates: list[DraftCandidate], others: int, wait_s: float
) -> None:
    plain = PlainStep(len(candidates) + others, 1.0, wait_s)
    found = choose_drafts(plain, candidates, most=99)
    counts = product(*(range(len(one.chances) + 1) for one in candidates))
    best = max(goodput(plain, candidates, each) for each in counts)
    if any(found):
        assert goodput(plain, candidates, found) == pytest.approx(best)
        assert best > (1 + LEAST_GAIN) * plain.num_draws / plain.step_s
    else:
        assert best <= (1 + LEAST_GAIN) * plain.num_draws / plain.step_s + 1e-9


def goodput(plain: PlainStep, candidates: list[DraftCandidate], counts: list[int] | tuple[int, ...]) -> float:
    tokens = plain.num_draws + sum(sum(one.chances[:count]) for one, count in zip(candidates, counts, strict=True))
    rows_s = sum(count * one.row_s for one, count in zip(candidates, counts, strict=True))
    return tokens / (plain.step_s + (plain.wait_s if any(counts) else 0.0) + rows_s)
