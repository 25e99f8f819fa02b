"""Waiting times, worked out by hand from QLM's formula."""

from __future__ import annotations

import math

import pytest

from shared.estimator.wait import NEVER, NOW, Wait, waiting_time


def test_the_mean_is_work_over_throughput_and_the_spread_grows_with_the_root() -> None:
    # 4 ahead x 100 tokens = 400 tokens at 50/s = 8 s;   sqrt(4) x 25 tokens = 50 tokens at 50/s = 1 s
    assert waiting_time(4, 100.0, 25.0, 50.0) == Wait(mean_s=8.0, std_s=1.0)
    # 100 times as many: mean x 100, spread x 10
    assert waiting_time(400, 100.0, 25.0, 50.0) == Wait(mean_s=800.0, std_s=10.0)


def test_the_relative_error_falls_as_one_over_the_root() -> None:
    errors = [wait.std_s / wait.mean_s for wait in (waiting_time(n, 100.0, 25.0, 50.0) for n in (1, 4, 16, 64))]
    assert errors == [0.25, 0.125, 0.0625, 0.03125]


def test_nobody_ahead_means_no_wait() -> None:
    wait = waiting_time(0, 100.0, 25.0, 50.0)
    assert wait == Wait(0.0, 0.0)
    assert wait.quantile(0.99) == 0.0


@pytest.mark.parametrize(("share", "expected_s"), [(0.5, 8.0), (0.8413447, 9.0), (0.9772499, 10.0), (0.1586553, 7.0)])
def test_quantiles_are_those_of_the_normal_distribution(share: float, expected_s: float) -> None:
    """One and two standard deviations from the mean, by the table."""
    assert Wait(8.0, 1.0).quantile(share) == pytest.approx(expected_s, abs=1e-5)


def test_a_quantile_is_never_negative_and_a_certain_wait_is_itself() -> None:
    assert Wait(1.0, 10.0).quantile(0.01) == 0.0
    assert Wait(3.0, 0.0).quantile(0.99) == 3.0


def test_now_and_never_are_sure() -> None:
    assert (NOW.mean_s, NOW.std_s) == (0.0, 0.0)
    assert (NEVER.mean_s, NEVER.std_s) == (math.inf, 0.0)
    assert NEVER.quantile(0.5) == math.inf


def test_of_two_waits_one_behind_the_other_means_and_variances_add() -> None:
    assert Wait(2.0, 3.0).then(Wait(5.0, 4.0)) == Wait(7.0, 5.0)
    assert Wait(2.0, 3.0).then(NOW) == Wait(2.0, 3.0)


def test_a_model_that_errs_makes_a_wait_less_sure() -> None:
    assert Wait(10.0, 3.0).give_or_take(0.4) == Wait(10.0, 5.0)
    assert NEVER.give_or_take(0.4) == NEVER
