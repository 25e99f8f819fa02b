"""What a wait grows to in a batch that leaves headroom, until patience ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.estimator.overtaking import SHARE_ERROR, Stream, overtaken
from shared.estimator.slack import BatchSlack, patient
from shared.estimator.wait import NEVER, Wait

SMALL, FULL = Wait(20.0, 2.0), Wait(10.0, 1.0)


def patience(slack_s: float, pace: float = 0.5, full: Wait = FULL) -> BatchSlack:
    return BatchSlack(slack_s, pace, 0.5, full)


def test_with_time_enough_the_small_batch_serves_it_to_the_start() -> None:
    assert patient(SMALL, [], patience(math.inf)) == SMALL


def test_without_time_the_full_batch_does_from_the_beginning() -> None:
    assert patient(SMALL, [], patience(0.0)) == FULL
    assert patient(SMALL, [], patience(-1.0)) == FULL


def test_at_the_pace_by_which_slack_is_reckoned_it_is_never_lost() -> None:
    """p = σ: each second does as much of the work before as was reckoned with."""
    assert patient(SMALL, [], patience(0.001, pace=0.5)) == SMALL


def test_patience_ends_where_slack_does() -> None:
    """p = 0.25, σ = 0.5: half a second is lost a second, so 3 s of slack last 6 s. 14 of 20 s are left by then, which
    take the full batch 7 s."""
    assert patient(SMALL, [], patience(3.0, pace=0.25)) == Wait(13.0, 1.0)


def test_whoever_comes_costs_slack_too() -> None:
    """With half of the small batch for newcomers, p (1 - ρ) = 0.25 again. In 6 s 3 s of the work are done; of the other
    17, the full batch has 8.5 s to do at 1 - p ρ = 0.75."""
    stream = Stream(0.5, 0.0, math.inf)
    wait = patient(SMALL, [stream], patience(3.0, pace=0.5))
    newcomers_s = 0.5 * (0.5 * wait.mean_s)  # of the full batch
    assert wait.mean_s == pytest.approx(6.0 + 8.5 / 0.75)
    assert wait.std_s == pytest.approx(math.hypot(1.0, SHARE_ERROR * newcomers_s) / 0.75)


def test_slack_that_lasts_longer_than_the_work_would_alone_may_still_end_before_it() -> None:
    """Half a second is lost a second again: 12 s of patience, in which 6 of 20 s are done. The full batch has 7 s."""
    wait = patient(SMALL, [Stream(0.5, 0.0, math.inf)], patience(6.0, pace=0.5))
    assert wait.mean_s == pytest.approx(12.0 + 7.0 / 0.75)


def test_when_they_stop_to_come_no_slack_is_lost_any_more() -> None:
    """Until 4 s newcomers take half: 2 s are done and 2 s of slack are left, as they stay. 18 s are left to do."""
    assert patient(SMALL, [Stream(0.5, 0.0, 4.0)], patience(4.0)) == Wait(22.0, math.hypot(2.0, SHARE_ERROR * 2.0))


def test_who_has_a_place_in_a_full_batch_begins_when_patience_ends() -> None:
    assert patient(SMALL, [], patience(3.0, pace=0.25, full=Wait(0.0, 0.0))) == Wait(6.0, 0.0)


def test_who_never_begins_never_does() -> None:
    assert patient(NEVER, [], patience(1.0)) == NEVER
    assert patient(SMALL, [], patience(1.0, full=NEVER)) == NEVER


seconds = st.floats(0.0, 1000.0, allow_subnormal=False)
paces = st.floats(0.05, 1.0)
streams = st.lists(st.builds(Stream, st.floats(0.0, 0.5), st.floats(0.0, 5.0), seconds), max_size=4)


@given(seconds, paces, seconds, streams)
def test_both_ends_are_the_plain_path(small_s: float, pace: float, slack_s: float, ahead: list[Stream]) -> None:
    small, full = Wait(small_s, 1.0), Wait(pace * small_s, 1.0)
    late = [Stream(pace * one.share, pace**2 * one.square_s, one.horizon_s) for one in ahead]
    plain = overtaken(full, late)
    hasty = patient(small, ahead, BatchSlack(-slack_s, pace, 0.5, full))
    assert (hasty.mean_s, hasty.std_s) == pytest.approx((plain.mean_s, plain.std_s))
    bounded = overtaken(small, ahead)
    calm = patient(small, ahead, BatchSlack(math.inf, pace, 0.5, full))
    assert (calm.mean_s, calm.std_s) == pytest.approx((bounded.mean_s, bounded.std_s))


@given(seconds, seconds, paces, seconds, streams)
def test_more_work_ahead_never_starts_it_earlier(
    one_s: float, other_s: float, pace: float, slack_s: float, ahead: list[Stream]
) -> None:
    less_s, more_s = sorted((one_s, other_s))
    less = patient(Wait(less_s, 0.0), ahead, BatchSlack(slack_s, pace, 0.5, Wait(pace * less_s, 0.0)))
    more = patient(Wait(more_s, 0.0), ahead, BatchSlack(slack_s, pace, 0.5, Wait(pace * more_s, 0.0)))
    assert less.mean_s <= more.mean_s + 1e-6


@given(seconds, paces, seconds, streams)
def test_a_little_more_slack_changes_little(small_s: float, pace: float, slack_s: float, ahead: list[Stream]) -> None:
    """No jump where patience ends: only where all slack is gone at once, it is another batch."""
    small, full = Wait(small_s, 0.0), Wait(pace * small_s, 0.0)
    before = patient(small, ahead, BatchSlack(1.0 + slack_s, pace, 0.5, full))
    after = patient(small, ahead, BatchSlack(1.0 + slack_s + 1e-9, pace, 0.5, full))
    assert after.mean_s == pytest.approx(before.mean_s, abs=1e-3)
