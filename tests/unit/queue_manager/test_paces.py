"""How fast a running request gets its tokens."""

from __future__ import annotations

import pytest

from services.queue_manager.paces import MAX_PACES, MEMORY_REQUESTS, PRIOR_TOKENS_PER_S, Pace, Paces


def test_the_first_request_sets_the_pace_and_later_ones_move_it() -> None:
    paces = Paces({})
    assert paces.tokens_per_s("a", "n0") == PRIOR_TOKENS_PER_S
    paces.observe("a", "n0", 100, seconds=2)
    assert paces.tokens_per_s("a", "n0") == 50
    paces.observe("a", "n0", 100, seconds=1)
    kept = 1 - 1 / MEMORY_REQUESTS
    assert paces.tokens_per_s("a", "n0") == pytest.approx((kept * 100 + 100) / (kept * 2 + 1))
    assert paces.tokens_per_s("a", "n1") == paces.tokens_per_s("b", "n0") == PRIOR_TOKENS_PER_S


def test_no_time_says_nothing() -> None:
    paces = Paces({})
    paces.observe("a", "n0", 100, seconds=0)
    assert paces.tokens_per_s("a", "n0") == PRIOR_TOKENS_PER_S


def test_the_oldest_are_forgotten() -> None:
    known: dict[str, Pace] = {}
    paces = Paces(known)
    for number in range(MAX_PACES):
        paces.observe("a", f"n{number}", 1, seconds=1)
    paces.observe("a", "n0", 1, seconds=1)
    paces.observe("a", "new", 1, seconds=1)
    assert len(known) == MAX_PACES
    assert "a n0" in known
    assert "a n1" not in known
