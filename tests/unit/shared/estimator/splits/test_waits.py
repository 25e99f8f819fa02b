"""What a queue comes to while its load is known; by hand, and at its limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.learnt.arrivals import MEMORY_S
from shared.estimator.splits.waits import HORIZON_S, late_share, queue_wait, wait_s


def test_a_load_is_known_for_as_long_as_its_rate_is_remembered() -> None:
    assert HORIZON_S == MEMORY_S


def test_a_short_queue_waits_as_pollaczek_and_khinchine_have_it() -> None:
    """Served 1,000 a second, constant times: κ = 1/2, and 0.5 * 0.5 / (1 - 0.5) / 1000 = 0.5 ms."""
    assert wait_s(0.5, 1000.0, 0.5) == pytest.approx(0.0005, rel=1e-3)


def test_one_that_is_overloaded_grows_all_the_time() -> None:
    """Half as much again as can be done: behind 60 s the last waits 30 s, and all 15 s on average."""
    assert wait_s(1.5, 1000.0, 0.5) == pytest.approx(HORIZON_S / 4, rel=1e-3)


def test_at_just_what_can_be_done_it_is_finite() -> None:
    """T / 4 * √(8 * 0.5 / 60)."""
    assert wait_s(1.0, 1.0, 0.5) == pytest.approx(15 * math.sqrt(4 / 60))


def test_more_servers_are_seldom_all_busy() -> None:
    one, eight = (queue_wait(0.5, 10.0, 0.5, servers) for servers in (1, 8))
    assert eight.mean_s < one.mean_s / 3
    assert queue_wait(0.0, 10.0, 0.5, 1).mean_s == 0.0


@given(st.floats(0.01, 3.0), st.floats(0.01, 1.0), st.floats(0.1, 100.0))
def test_no_wait_falls_where_the_load_rises(busy: float, more: float, per_s: float) -> None:
    assert wait_s(busy + more, per_s, 0.5) >= wait_s(busy, per_s, 0.5) >= 0.0


def test_who_is_late_follows_from_mean_and_deviation() -> None:
    assert late_share(1.0, 0.5, 1.0) == 0.5
    assert late_share(1.0, 0.5, 2.0) == pytest.approx(0.02275, rel=1e-3), "two deviations away"
    assert (late_share(1.0, 0.0, 0.9), late_share(1.0, 0.0, 1.1)) == (1.0, 0.0)
    assert late_share(1.0, 0.5, math.inf) == 0.0
