"""Bounds of predicted waits follow what is kept of them."""

from __future__ import annotations

import random

import pytest

from services.queue_manager.learnt.wait_intervals import (
    LEAST_Z,
    MAX_TOLD,
    MAX_WIDTHS,
    MOST_Z,
    NORMAL_Z,
    STEP,
    UPPER,
    WaitIntervals,
    WaitKind,
    WatchedInterval,
)
from shared.estimator.wait import NEVER, Wait

TEN = Wait(10.0, 2.0)


class Judged(WaitIntervals):
    def __init__(self) -> None:
        self.widths: dict[WaitKind, float] = {}
        self.told: dict[str, WatchedInterval] = {}
        super().__init__(self.widths, self.told)

    def happens(self, wait: Wait, actual_s: float) -> bool:
        """A request is predicted to wait so long, and waits so long; answers whether its bound held."""
        bound_s = self.widened("a", "batch", wait).quantile(UPPER)
        self.watch("r", "a", "batch", wait, 100.0)
        self.started("r", 100.0 + actual_s)
        return actual_s <= bound_s


def test_the_models_own_spread_holds_where_nothing_was_seen() -> None:
    assert Judged().widened("a", "batch", TEN) == TEN
    assert Judged().widened("a", "batch", NEVER) == NEVER


def test_a_miss_widens_and_a_bound_that_held_narrows_a_little() -> None:
    """2 s of standard deviation: 1.28 of them, then 0.18 more, then 0.02 less."""
    bounds = Judged()
    for actual_s, z in ((13.0, NORMAL_Z + 0.9 * STEP), (12.0, NORMAL_Z + 0.8 * STEP)):
        bounds.happens(TEN, actual_s)
        assert bounds.widened("a", "batch", TEN).quantile(UPPER) == pytest.approx(10.0 + 2.0 * z)
        assert bounds.widened("a", "batch", TEN).mean_s == 10.0


def test_a_calm_hour_narrows_only_so_far() -> None:
    """Four of five, if the spread is right: 0.84 standard deviations."""
    bounds = Judged()
    for _ in range(100):
        bounds.happens(TEN, 0.0)
    assert bounds.widened("a", "batch", TEN).quantile(UPPER) == pytest.approx(10.0 + 2.0 * 0.84)


def test_a_bound_that_is_over_counts_at_once_and_once() -> None:
    bounds = Judged()
    bounds.watch("r", "a", "batch", TEN, 100.0)
    bounds.look(112.0)
    assert not bounds.widths
    bounds.look(113.0)
    bounds.look(114.0)
    bounds.started("r", 200.0)
    assert list(bounds.widths.values()) == [pytest.approx(NORMAL_Z + 0.9 * STEP)]
    assert not bounds.told


def test_who_leaves_says_nothing() -> None:
    bounds = Judged()
    bounds.watch("r", "a", "batch", TEN, 100.0)
    bounds.forget("r")
    bounds.look(1000.0)
    assert not bounds.widths


def test_kinds_and_sizes_do_not_mix() -> None:
    bounds = Judged()
    bounds.happens(TEN, 100.0)
    assert bounds.widened("a", "interactive", TEN) == TEN
    assert bounds.widened("b", "batch", TEN) == TEN
    assert bounds.widened("a", "batch", Wait(100.0, 2.0)) == Wait(100.0, 2.0)


@pytest.mark.parametrize("true_std_s", [4.0, 8.0])
def test_nine_in_ten_hold_however_large_the_spread_really_is(true_std_s: float) -> None:
    """Waits of 100 s that are told with a standard deviation of 2 s; judged after a hundred."""
    chance = random.Random(1)
    bounds = Judged()
    held = [bounds.happens(Wait(100.0, 2.0), chance.gauss(100.0, true_std_s)) for _ in range(1100)]
    assert sum(held[100:]) / 1000 == pytest.approx(UPPER, abs=0.02)


def test_widths_are_bounded() -> None:
    bounds = Judged()
    for _ in range(1000):
        bounds.happens(TEN, 1e6)
    assert list(bounds.widths.values()) == [MOST_Z]
    for _ in range(1000):
        bounds.happens(TEN, 0.0)
    assert list(bounds.widths.values()) == [LEAST_Z]


def test_what_is_remembered_is_bounded() -> None:
    bounds = Judged()
    for number in range(MAX_TOLD + 1):
        bounds.watch(f"r{number}", "a", "batch", TEN, 100.0)
    assert len(bounds.told) == MAX_TOLD
    for number in range(MAX_WIDTHS + 1):
        bounds.watch("one", f"m{number}", "batch", TEN, 100.0)
        bounds.forget(f"r{number}")
        bounds.watch("one", f"m{number}", "batch", TEN, 100.0)
        bounds.started("one", 1000.0)
    assert len(bounds.widths) == MAX_WIDTHS


def test_left_out_bounds_are_those_of_the_model() -> None:
    judged = Judged()
    judged.happens(TEN, 13.0)
    assert judged.widened("a", "batch", TEN) != TEN
    assert WaitIntervals(judged.widths, {}, is_on=False).widened("a", "batch", TEN) == TEN
