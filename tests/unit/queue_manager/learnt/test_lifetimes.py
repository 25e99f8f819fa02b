"""For how long streams come, and whether they still do."""

from __future__ import annotations

import math

import pytest

from services.queue_manager.learnt.lifetimes import (
    LEAST_GAP_S,
    LEAST_SEEN_S,
    MAX_ENDED,
    NEVER_S,
    Gaps,
    Lifetimes,
    alive,
)


def test_streams_last_as_long_as_those_that_ended_and_those_that_have_not_count_as_far_as_they_have_come() -> None:
    known = Lifetimes()
    assert known.mean_s == 0.0
    known.add(60.0, is_over=False)
    assert known.mean_s == 60.0
    known.add(30.0, is_over=True)
    assert known.mean_s == 45.0
    known.add(0.9 * LEAST_SEEN_S, is_over=True)
    assert known.mean_s == 45.0, "a burst is no stream"


def test_what_ended_long_ago_counts_less() -> None:
    known = Lifetimes()
    for _ in range(MAX_ENDED):
        known.add(100.0, is_over=True)
        known.fade()
    assert (known.num_ended, known.lasted_s) == (MAX_ENDED, 100.0 * MAX_ENDED)
    known.add(20.0, is_over=True)
    known.fade()
    assert (known.num_ended, known.lasted_s) == ((MAX_ENDED + 1) / 2, (100.0 * MAX_ENDED + 20.0) / 2)


def test_what_is_left_of_a_gap_is_longer_where_requests_come_in_bunches() -> None:
    """A hundred even gaps of 1 s leave half a second; ten of 10 s with nine of none between leave five."""
    even, bunches = Gaps(100.0, 100.0), Gaps(100.0, 1000.0)
    assert even.left_s == pytest.approx((100 + 2 * LEAST_GAP_S**2) / (2 * (100 + LEAST_GAP_S)))
    assert even.left_s == pytest.approx(0.53, abs=0.01)
    assert bunches.left_s == pytest.approx(4.94, abs=0.01)
    assert Gaps(0.0, 0.0).left_s == LEAST_GAP_S, "nothing is known of it"


def test_who_was_heard_of_just_now_is_alive_and_silence_tells() -> None:
    """By hand: λ = 1/2, μ = 1/10, s = 5: 1 / (1 + (0.1 / 0.6) (e³ - 1))."""
    gaps = Gaps(0.0, 0.0)
    assert alive(0.0, gaps, 10.0) == 1.0
    assert alive(5.0, gaps, 10.0) == pytest.approx(1 / (1 + (math.e**3 - 1) / 6))
    assert alive(5.0, gaps, 10_000.0) > 0.98, "what has lasted for long is seldom over"
    assert alive(5.0, Gaps(100.0, 100.0), 10_000.0) < alive(5.0, Gaps(100.0, 1000.0), 10_000.0)
    assert alive(1.01 * NEVER_S * LEAST_GAP_S, gaps, math.inf) == 0.0
