"""Counts add up, kind by kind; a sum that is asked for again is made again when a part has changed, and only then."""

from __future__ import annotations

from gpu_node.engine.measures.counts import Counts, KeptCounts, SumOfCounts, TierCounts

SWAPPED = Counts(num_preemptions=1, swapped=TierCounts(out_bytes=64, num_restored=2))
KEPT = Counts(num_preemptions=2, kept=KeptCounts(num_lost_blocks=3))
BOTH = Counts(
    num_preemptions=3,
    swapped=TierCounts(out_bytes=64, num_restored=2),
    kept=KeptCounts(num_lost_blocks=3),
)


def test_counts_add_up_and_come_apart_as_far_down_as_they_go() -> None:
    assert SWAPPED + KEPT == BOTH
    assert BOTH - SWAPPED == KEPT
    nothing = BOTH - BOTH
    assert nothing == Counts()


def test_a_sum_follows_its_parts() -> None:
    total = SumOfCounts()
    assert total.of() == Counts()
    assert total.of(SWAPPED) == SWAPPED
    assert total.of(SWAPPED, KEPT) == BOTH
    assert total.of(KEPT) == KEPT


def test_a_sum_of_parts_that_are_as_they_were_is_not_made_again() -> None:
    total = SumOfCounts()
    first = total.of(SWAPPED, KEPT)
    assert total.of(SWAPPED, Counts(num_preemptions=2, kept=KeptCounts(num_lost_blocks=3))) is first
    assert total.of(SWAPPED, SWAPPED) is not first
