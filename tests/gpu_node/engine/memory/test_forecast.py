"""Predicted peaks, worked by hand with blocks of 4 tokens."""

from __future__ import annotations

from gpu_node.engine.memory.forecast import KvDemand, RunningMean, expected_growth, peak_slots


def test_one_sequence_peaks_at_its_end() -> None:
    """3 slots of its last block may be empty."""
    assert peak_slots([KvDemand(5, 0)], 4) == 8
    assert peak_slots([KvDemand(5, 3)], 4) == 11
    assert peak_slots([KvDemand(5, 4)], 4) == 12


def test_the_peak_is_not_the_sum_of_the_ends() -> None:
    # after 4 steps: 12 + 8 slots; then the first is gone and the second grows alone to 20 slots
    assert peak_slots([KvDemand(8, 4), KvDemand(4, 16)], 4) == 12 + 8 + 2 * 3


def test_shared_blocks_count_once_while_any_holder_lives() -> None:
    together = [KvDemand(12, 0, [0, 1, 2]), KvDemand(12, 0, [0, 1, 3])]
    assert peak_slots(together, 4) == 24 + 2 * 3 - 2 * 4
    # the longer-lived one is charged with the shared blocks: alone at its end it holds them all
    assert peak_slots([KvDemand(8, 0, [0, 1]), KvDemand(8, 8, [0, 1])], 4) == 16 + 3


def test_nothing_needs_nothing() -> None:
    assert peak_slots([], 4) == 0


def test_expected_growth_follows_the_mean_within_the_limit() -> None:
    assert expected_growth(num_output_tokens=2, mean_output_tokens=10, max_growth_tokens=50) == 8
    assert expected_growth(num_output_tokens=2, mean_output_tokens=10, max_growth_tokens=3) == 3
    assert expected_growth(num_output_tokens=12, mean_output_tokens=10, max_growth_tokens=50) == 10


def test_the_mean_is_exact_at_first_and_forgets_later() -> None:
    mean = RunningMean()
    assert mean.value(default=5.0) == 5.0
    for value in (1, 2, 6):
        mean.observe(value)
    assert mean.value(default=5.0) == 3.0
    for _ in range(1000):
        mean.observe(40)
    assert abs(mean.value(default=0.0) - 40) < 1e-3


def test_a_mean_does_not_hang_on_the_order() -> None:
    """Of whole numbers: one more in the last digit would be rounded up to a token more."""
    lengths = (1, 1, 2, 2, 7, 12, 12, 7, 7, 19)
    for order in (lengths, lengths[::-1], sorted(lengths, key=lambda length: length % 5)):
        mean = RunningMean()
        for length in order:
            mean.observe(length)
        assert mean.value(default=0.0) == 7.0
