"""How many run together where a batch is kept small."""

from __future__ import annotations

import math

import pytest

from services.queue_manager.learnt.kept_batch import MEMORY_S, PRIOR_S, KeptBatch


def test_as_long_as_nothing_was_seen_the_limit_holds() -> None:
    assert KeptBatch().expected("a", 163) == 163


def test_what_ran_counts_by_how_long_it_did() -> None:
    """After 30 s with 190: (10 * 163 + 30 * 190) / 40 = 183.25."""
    kept = KeptBatch().seen("a", 163, 190, 3 * PRIOR_S)
    assert kept.expected("a", 163) == 183


def test_a_limit_that_flips_to_the_next_size_and_back_moves_it_slowly() -> None:
    """163 and 187 are sizes that are looked at one behind the other: int(1.15 * 163) = 187."""
    kept = KeptBatch()
    for _ in range(200):
        kept = kept.seen("a", 163, 163, 1.0).seen("a", 187, 187, 1.0)
    assert kept.expected("a", 163) == pytest.approx(175, abs=1)
    assert kept.expected("a", 187) == pytest.approx(175, abs=2)


def test_what_was_seen_is_forgotten_slowly() -> None:
    kept = KeptBatch().seen("a", 10, 20, 1.0).seen("a", 10, 10, MEMORY_S)
    assert kept.seconds == pytest.approx(MEMORY_S + 1 / math.e)
    assert kept.running_s == pytest.approx(10 * MEMORY_S + 20 / math.e)


def test_beside_quite_another_limit_or_model_it_begins_anew() -> None:
    kept = KeptBatch().seen("a", 163, 180, 1e3)
    assert kept.expected("a", 188) == 188, "more than a step apart"
    assert kept.expected("a", 100) == 100
    assert kept.expected("b", 163) == 163
    assert kept.seen("a", 100, 110, 1.0) == KeptBatch("a", 100, 1.0, 110.0)
