"""Beam search by hand: which continuations end, which go on, and when nothing better can come."""

from __future__ import annotations

import pytest

from gpu_node.engine.requests.beams import (
    Continuation,
    Hypothesis,
    best,
    best_score,
    choose,
    continuations,
    is_over,
    score,
)

EOS = 9


def ends(one: Continuation) -> bool:
    return one.token_id == EOS


def hypothesis(value: float) -> Hypothesis:
    return Hypothesis(value, [], [], "stop")


def test_continuations_of_all_beams_are_ranked_together() -> None:
    ranked = continuations([(-1.0, [(5, -0.5), (6, -2.0)]), (-1.25, [(7, -0.5), (8, -0.75)])])
    assert [(one.beam, one.token_id, one.sum_logprobs) for one in ranked] == [
        (0, 5, -1.5),
        (1, 7, -1.75),
        (1, 8, -2.0),
        (0, 6, -3.0),
    ]
    assert [one.logprob for one in ranked] == [-0.5, -0.5, -0.75, -2.0]


def test_of_equal_continuations_the_older_beam_and_then_the_lower_token_comes_first() -> None:
    ranked = continuations([(-1.0, [(6, -1.0), (4, -1.0)]), (-1.5, [(3, -0.5)])])
    assert [(one.beam, one.token_id) for one in ranked] == [(0, 4), (0, 6), (1, 3)]


def test_what_ends_among_the_first_is_a_hypothesis_and_the_first_others_go_on() -> None:
    ranked = continuations([(0.0, [(EOS, -0.1), (5, -0.2)]), (-0.2, [(6, -0.1), (EOS, -0.2), (7, -0.5)])])
    assert [(one.beam, one.token_id) for one in ranked] == [(0, EOS), (0, 5), (1, 6), (1, EOS), (1, 7)]
    ended, going = choose(ranked, width=2, ends=ends)
    assert [(one.beam, one.token_id) for one in ended] == [(0, EOS)]  # the other end would have been no beam either
    assert [(one.beam, one.token_id) for one in going] == [(0, 5), (1, 6)]


def test_at_the_limit_everything_ends_and_nothing_goes_on() -> None:
    ranked = continuations([(0.0, [(5, -0.2), (6, -0.3), (7, -0.4)])])
    ended, going = choose(ranked, width=2, ends=lambda _: True)
    assert [one.token_id for one in ended] == [5, 6]
    assert going == []


@pytest.mark.parametrize(("penalty", "expected"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6.0 / 9), (-1.0, -18.0)])
def test_a_score_is_the_sum_over_the_length_to_a_power(penalty: float, expected: float) -> None:
    assert score(-6.0, 3, penalty) == pytest.approx(expected)


def test_the_best_possible_score_is_taken_where_the_penalty_is_kindest() -> None:
    assert best_score(-6.0, 3, 12, 1.0) == pytest.approx(-0.5)  # nothing more is lost up to the last token
    assert best_score(-6.0, 3, 12, 0.0) == pytest.approx(-6.0)
    assert best_score(-6.0, 3, 12, -1.0) == pytest.approx(-18.0)  # each further token makes it worse


def test_the_best_are_kept_and_the_first_of_equals() -> None:
    found = [hypothesis(-2.0), hypothesis(-1.0), hypothesis(-2.0), hypothesis(-3.0)]
    kept = best(found, 2)
    assert [one.score for one in kept] == [-1.0, -2.0]
    assert kept[1] is found[0]


def test_the_search_is_over_when_the_pool_is_full_and_cannot_be_beaten() -> None:
    pool = [hypothesis(-1.0), hypothesis(-2.0)]
    assert not is_over(pool[:1], 2, best_possible_score=-9.0)
    assert not is_over(pool, 2, best_possible_score=-1.9)
    assert is_over(pool, 2, best_possible_score=-2.0)
