"""A rate that changes: by hand, and what is always so."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.learnt.changing_rate import CHANGE_S, MAX_BELIEFS, STRETCH_S, Belief, ChangingRate

ALONE = 1.0  # index of dispersion of those who come by themselves


def rate_of(times_s: Iterable[float], dispersion: float = ALONE) -> ChangingRate:
    """Of a stream that began at 0."""
    rate = ChangingRate(0.0)
    for time_s in times_s:
        rate.add(time_s, dispersion)
    return rate


def poisson(per_s: float, begin_s: float, end_s: float, random: Random) -> list[float]:
    times_s = [begin_s]
    while times_s[-1] < end_s:
        times_s.append(times_s[-1] + random.expovariate(per_s))
    return times_s[1:-1]


def test_the_evidence_of_a_stretch() -> None:
    """Γ(2.5) / Γ(0.5) = 1.5 · 0.5, and 0.5^0.5 / 3.5^2.5."""
    assert Belief(1.0, 0.5, 0.5).log_evidence(2, 3.0) == pytest.approx(math.log(0.75 * 0.5**0.5 / 3.5**2.5))


def test_one_stretch_by_hand() -> None:
    """Three in 3 s, behind half a request in half a second. Whether it has changed before makes no difference yet."""
    rate = rate_of([1.0, 2.0, 3.0])
    assert (rate.begun_s, rate.num) == (3.0, 0)
    stays = math.exp(-3.0 / CHANGE_S)
    assert [(one.num, one.seconds) for one in rate.beliefs] == [(3.5, 3.5), (3.5, 3.5)]
    assert [one.probability for one in rate.beliefs] == pytest.approx([stays, 1 - stays])
    per_s, error = rate.estimate(3.0, ALONE)
    assert (per_s, error) == pytest.approx((3.0 / 3.5, 1 / math.sqrt(3.5)))


def test_the_second_stretch_by_hand() -> None:
    """Twelve in 3 s, where one a second was believed: a change has the better evidence."""
    rate = ChangingRate(3.0, beliefs=[Belief(1.0, 3.5, 3.5)])
    for number in range(12):
        rate.add(6.0 if number == 11 else 5.0, ALONE)
    stayed = math.exp(-3.0 / CHANGE_S) * math.gamma(15.5) / math.gamma(3.5) * 3.5**3.5 / 6.5**15.5
    changed = (1 - math.exp(-3.0 / CHANGE_S)) * math.gamma(12.5) / math.gamma(0.5) * 0.5**0.5 / 3.5**12.5
    old, new = rate.beliefs
    assert (old.num, old.seconds, new.num, new.seconds) == pytest.approx((15.5, 6.5, 12.5, 3.5))
    assert new.probability / old.probability == pytest.approx(changed / stayed)


def test_what_came_since_the_last_stretch_counts_and_so_does_silence() -> None:
    rate = rate_of([1.0, 2.0, 3.0, 3.5, 4.0])
    assert rate.estimate(4.5, ALONE).per_s == pytest.approx(5.0 / 5.0)
    assert rate.estimate(10.5, ALONE).per_s == pytest.approx(5.0 / 11.0)


def test_the_first_begins_it() -> None:
    rate = ChangingRate()
    assert rate.estimate(5.0, ALONE).per_s == 0.0
    rate.add(7.0, ALONE)
    assert rate == ChangingRate(7.0)


def test_nobody_ends_a_stretch_who_comes_soon() -> None:
    assert rate_of([0.0, 1.0, STRETCH_S - 0.01]).num == 3
    assert rate_of([0.0, 1.0, STRETCH_S]).num == 0


def test_of_those_who_come_in_bunches_of_four_each_tells_a_quarter() -> None:
    by_four, alone = (rate_of([1.0, 2.0, 3.0], dispersion) for dispersion in (4.0, ALONE))
    assert [(one.num, one.seconds) for one in by_four.beliefs] == [(0.5 + 0.75, 0.5 + 0.75)] * 2
    assert by_four.estimate(3.0, 4.0).per_s == pytest.approx(0.75 / 1.25)
    assert alone.estimate(3.0, ALONE).per_s == pytest.approx(3.0 / 3.5)
    assert by_four.estimate(3.0, 4.0).error == pytest.approx(1 / math.sqrt(1.25))


def test_a_rate_that_stays_is_known_ever_better() -> None:
    errors = [
        rate_of(poisson(4.0, 0.0, end_s, Random(1))).estimate(end_s, ALONE).error for end_s in (10.0, 100.0, 900.0)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.03, "from a thousand and more; the last minute alone had told it to 0.06"


@pytest.mark.parametrize(("before", "after"), [(2.0, 3.5), (1.0, 8.0), (8.0, 1.0)])
def test_a_change_is_seen_within_half_a_minute(before: float, after: float) -> None:
    random = Random(2)
    rate = rate_of(poisson(before, 0.0, 600.0, random))
    assert rate.estimate(600.0, ALONE).per_s == pytest.approx(before, rel=0.15)
    for time_s in poisson(after, 600.0, 630.0, random):
        rate.add(time_s, ALONE)
    assert rate.estimate(630.0, ALONE).per_s == pytest.approx(after, rel=0.35)


def test_a_stretch_may_have_next_to_no_probability_for_whoever_knew() -> None:
    """A thousand at once behind an hour of one a minute: nothing underflows."""
    rate = ChangingRate(0.0, beliefs=[Belief(1.0, 60.0, 3600.0)])
    for _ in range(1000):
        rate.add(2.0, ALONE)
    rate.add(3.0, ALONE)
    assert rate.estimate(3.0, ALONE).per_s == pytest.approx(1001 / 3.5)


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(1.0, 50.0)), max_size=60))
def test_what_is_always_so(gaps: list[tuple[float, float]]) -> None:
    rate, now = ChangingRate(0.0), 0.0
    for gap_s, dispersion in gaps:
        now += gap_s
        rate.add(now, dispersion)
        assert 1 <= len(rate.beliefs) <= MAX_BELIEFS
        assert math.fsum(one.probability for one in rate.beliefs) == pytest.approx(1.0)
        per_s, error = rate.estimate(now + 1.0, dispersion)
        assert 0.0 <= per_s < math.inf
        assert 0.0 < error < math.inf
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(rate), type=ChangingRate) == rate
