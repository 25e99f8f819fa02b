"""What a wait grows to while newcomers go ahead; all figures are computed by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.estimator.overtaking import MOST_SHARE, Stream, held_share, overtaken
from shared.estimator.wait import NEVER, NOW, Wait

FOR_EVER_S = 1e9


def stream(share: float, horizon_s: float, square_s: float = 0.0) -> Stream:
    return Stream(share, square_s, horizon_s)


def test_nobody_comes() -> None:
    assert overtaken(Wait(10.0, 2.0), []) == Wait(10.0, 2.0)


def test_who_keeps_a_node_to_itself_holds_it_while_somebody_is_there() -> None:
    """M/G/∞: with ln 2 there on average, half of the time nobody is."""
    assert held_share(0.0) == 0.0
    assert held_share(math.log(2)) == pytest.approx(0.5)
    assert held_share(10.0) == MOST_SHARE


def test_a_stream_without_an_end_is_cobhams_formula() -> None:
    """10 / (1 - 0.5 - 0.25)."""
    streams = [stream(0.5, FOR_EVER_S), stream(0.25, FOR_EVER_S)]
    assert overtaken(Wait(10.0, 0.0), streams).mean_s == pytest.approx(40.0)


def test_who_comes_behind_the_horizon_does_not_overtake() -> None:
    """Until 8 s half of the device works it off, which leaves 6 of 10 s."""
    assert overtaken(Wait(10.0, 0.0), [stream(0.5, 8.0)]).mean_s == pytest.approx(14.0)


def test_each_stream_has_its_own_horizon() -> None:
    """4 s at 1/4 are 1 s of work, 8 more at 1/2 are 4 s, and 5 s are left."""
    streams = [stream(0.5, 12.0), stream(0.25, 4.0)]
    assert overtaken(Wait(10.0, 0.0), streams).mean_s == pytest.approx(17.0)


def test_a_wait_that_ends_before_the_horizon() -> None:
    assert overtaken(Wait(2.0, 0.0), [stream(0.5, 8.0)]).mean_s == pytest.approx(4.0)


def test_newcomers_never_count_as_all_of_a_device() -> None:
    assert overtaken(Wait(3.0, 0.0), [stream(2.0, FOR_EVER_S)]).mean_s == pytest.approx(3.0 / (1 - MOST_SHARE))


def test_more_work_counts_more_while_they_come() -> None:
    """A standard deviation of 2 s at half a device; 0.3 s² a second for 20 s; 5 % of 10 s: (4 + 6 + 0.25) / 0.5²."""
    assert overtaken(Wait(10.0, 2.0), [stream(0.5, FOR_EVER_S, 0.3)]).std_s == pytest.approx(41.0**0.5)


def test_behind_the_horizon_only_their_number_is_uncertain() -> None:
    """4 + 0.75 s² a second for 8 s + (5 % of the 4 s that they need)²."""
    assert overtaken(Wait(10.0, 2.0), [stream(0.5, 8.0, 0.75)]).std_s == pytest.approx(10.04**0.5)


def test_a_rate_that_is_known_from_few_is_uncertain() -> None:
    """4 + (5 % and 1 / √4 of the 4 s that they need)²: 0.04 and 4."""
    few = Stream(0.5, 0.0, 8.0, error=0.5)
    assert overtaken(Wait(10.0, 2.0), [few]).std_s == pytest.approx(8.04**0.5)


def test_who_starts_now_or_never_is_not_overtaken() -> None:
    assert overtaken(NOW, [stream(0.5, 8.0)]) == NOW
    assert overtaken(NEVER, [stream(0.5, 8.0)]) == NEVER


@given(
    st.floats(0.0, 1e3),
    st.lists(st.builds(stream, st.floats(0.0, 0.3), st.floats(-10.0, 1e3)), max_size=5),
)
def test_what_is_left_of_the_device_works_it_off(work_s: float, streams: list[Stream]) -> None:
    """The definition: W = ∫ (1 - Σ ρ), added up piece by piece."""
    end_s = overtaken(Wait(work_s, 0.0), streams).mean_s
    edges = sorted({0.0, end_s, *(one.horizon_s for one in streams if 0 < one.horizon_s < end_s)})
    done_s = 0.0
    for begin_s, stop_s in pairwise(edges):
        share = sum(one.share for one in streams if one.horizon_s >= stop_s)
        done_s += (1 - min(share, MOST_SHARE)) * (stop_s - begin_s)
    assert done_s == pytest.approx(work_s, rel=1e-6, abs=1e-6)
