"""How fast work is learnt to arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import pytest

from services.queue_manager.learnt.arrivals import MAX_FLOWS, MEMORY_S, ArrivalRates, Coming, Flow
from services.queue_manager.learnt.lifetimes import LEAST_SEEN_S, Gaps, Lifetimes, alive
from shared.config.services.corrections import Correction
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.slo import Slo

SOON = Slo("interactive", deadline_s=20.0)


@dataclass
class Arrived:
    model: str = "a"
    slo: Slo = SOON
    prompt_tokens: int = 10
    max_tokens: int = 100


def flow_of(*times_s: float) -> Flow:
    flows: dict[RequestKind, Flow] = {}
    for time_s in times_s:
        ArrivalRates(flows, Lifetimes()).observe(Arrived(), time_s)
    return flows[RequestKind("a", "interactive")]


def test_one_request_is_no_stream() -> None:
    assert flow_of(0.0).estimate(30.0).per_s == 0.0


def test_a_burst_counts_as_if_it_had_lasted_a_while() -> None:
    """Four behind the first, in 10.5 s."""
    assert flow_of(*[0.0] * 5).estimate(0.0).per_s == pytest.approx(4 / (LEAST_SEEN_S + 0.5))


def test_an_even_stream_has_its_rate() -> None:
    flow = flow_of(*(number / 2 for number in range(1000)))
    assert flow.dispersion == 1.0
    assert flow.estimate(499.75).per_s == pytest.approx(2.0, rel=0.01)


def test_those_who_come_in_bunches_tell_as_much_as_there_are_bunches() -> None:
    """Four at once, every 4 s: gaps of 0, 0, 0 and 4 s have the mean 1 and the mean square 4, so φ = 3."""
    flow = flow_of(*(float(number - number % 4) for number in range(2000)))
    assert flow.dispersion == pytest.approx(3.0, rel=0.01)
    even = flow_of(*map(float, range(2000)))
    assert flow.estimate(2000.0).per_s == pytest.approx(1.0, rel=0.02)
    assert flow.estimate(2000.0).error == pytest.approx(math.sqrt(3.0) * even.estimate(2000.0).error, rel=0.1)


def coming_of(now: float, *times_s: float, lifetimes: Lifetimes | None = None) -> Coming:
    """What can be expected of the one stream that came at these times."""
    flows: dict[RequestKind, Flow] = {}
    arrivals = ArrivalRates(flows, lifetimes or Lifetimes())
    for time_s in times_s:
        arrivals.observe(Arrived(), time_s)
    return arrivals.coming(flows[RequestKind("a", "interactive")], now)


def test_a_burst_is_no_stream_and_expected_to_go_on_for_a_while() -> None:
    assert coming_of(6.0, 5.0, 6.0).lasts_s == LEAST_SEEN_S


def test_a_stream_is_expected_to_last_as_long_as_it_has_and_as_streams_do() -> None:
    """The one that is known has lasted for 40 s, and none has ended; then three that did, 60 s in all."""
    assert coming_of(45.0, 5.0, 6.0, 45.0).lasts_s == 40.0 + 40.0
    assert coming_of(45.0, 5.0, 6.0, 45.0, lifetimes=Lifetimes(3.0, 60.0)).lasts_s == 40.0 + (60.0 + 40.0) / 4


def test_who_has_been_silent_may_have_ended() -> None:
    """One a second for 100 s: in the next second another may come yet, behind ten nobody is expected any more."""
    times_s = [float(number) for number in range(101)]
    flow = flow_of(*times_s)
    for now in (101.0, 104.0, 110.0):
        chance = alive(now - 100.0, Gaps(flow.gap_s, flow.square_gap_s2), 200.0)
        assert coming_of(now, *times_s).rate_per_s == pytest.approx(chance * flow.estimate(now).per_s)
    assert coming_of(101.0, *times_s).rate_per_s == pytest.approx(0.97, abs=0.02)
    assert coming_of(110.0, *times_s).rate_per_s < 0.001


def test_what_has_ended_is_remembered_but_for_bursts() -> None:
    lifetimes = Lifetimes()
    arrivals = ArrivalRates({}, lifetimes)
    for time_s in (0.0, 30.0, 31.0 + MEMORY_S, 33.0 + MEMORY_S, 35.0 + 2 * MEMORY_S):
        arrivals.observe(Arrived(), time_s)
    assert lifetimes == Lifetimes(1.0, 30.0)


def test_a_stream_of_which_nobody_has_come_for_long_has_ended() -> None:
    flows: dict[RequestKind, Flow] = {}
    arrivals = ArrivalRates(flows, Lifetimes())
    for model, begin_s in (("old", 0.0), ("a", 200.0)):
        for number in range(21):
            arrivals.observe(Arrived(model), begin_s + number)
    assert arrivals.coming(flows[RequestKind("a", "interactive")], 220.0).lasts_s == 20.0 + (20.0 + 20.0) / 2


def test_after_a_lull_it_begins_anew() -> None:
    flow = flow_of(0.0, 1.0, 2.0, 2.0 + MEMORY_S + 1)
    assert (flow.since_s, flow.num) == (2.0 + MEMORY_S + 1, 1.0)


def test_what_comes_is_described_by_its_means() -> None:
    flows: dict[RequestKind, Flow] = {}
    arrivals = ArrivalRates(flows, Lifetimes())
    arrivals.observe(Arrived(prompt_tokens=10, max_tokens=100), 0.0)
    arrivals.observe(Arrived(prompt_tokens=30, max_tokens=300), 0.0)
    (flow,) = arrivals.of_model("a")
    assert (flow.prompt_tokens / flow.num, flow.square_prompt_tokens / flow.num) == (20.0, 500.0)
    assert (flow.limit_tokens / flow.num, flow.patience_s / flow.num) == (200.0, 20.0)
    assert not list(arrivals.of_model("b"))


def test_the_oldest_are_forgotten() -> None:
    flows: dict[RequestKind, Flow] = {}
    for number in range(MAX_FLOWS + 1):
        ArrivalRates(flows, Lifetimes()).observe(Arrived(model=f"m{number}"), float(number))
    assert len(flows) == MAX_FLOWS
    assert RequestKind("m0", "interactive") not in flows


def test_a_flow_that_an_older_version_has_kept_learns_its_rate_anew() -> None:
    """It was kept without one: what is missing at its end has its default."""
    kept = msgspec.msgpack.encode(["a", "interactive", 0.0, 100.0, 50.0, 500.0, 5000.0, 5000.0, 1000.0, 60.0, 80.0])
    flow = msgspec.msgpack.decode(kept, type=Flow)
    assert flow.estimate(100.0).per_s == 0.0
    flows = {RequestKind("a", "interactive"): flow}
    for number in range(1, 31):
        ArrivalRates(flows, Lifetimes()).observe(Arrived(), 100.0 + number)
    assert flow.estimate(130.0).per_s == pytest.approx(1.0, rel=0.05)


def test_without_change_points_a_rate_is_that_of_the_last_minute() -> None:
    """Two behind the first in thirty seconds, each faded since it came."""
    flows: dict[RequestKind, Flow] = {}
    arrivals = ArrivalRates(flows, Lifetimes(), frozenset(Correction) - {Correction.CHANGE_POINTS})
    for time_s in (0.0, 10.0, 20.0):
        arrivals.observe(Arrived(), time_s)
    faded = math.exp(-20 / MEMORY_S) + math.exp(-10 / MEMORY_S)
    per_s = faded / (MEMORY_S * (1 - math.exp(-30 / MEMORY_S)))
    flow = flows[RequestKind("a", "interactive")]
    assert flow.mean_rate(30.0).per_s == pytest.approx(per_s)
    assert flow.mean_rate(30.0).error == pytest.approx(1 / math.sqrt(faded))
    coming = arrivals.coming(flow, 30.0)
    is_alive = alive(10.0, Gaps(flow.gap_s, flow.square_gap_s2), coming.lasts_s)
    assert coming.rate_per_s == pytest.approx(is_alive * per_s)


def test_without_lifetimes_a_stream_goes_on_for_as_long_as_it_has() -> None:
    flows: dict[RequestKind, Flow] = {}
    arrivals = ArrivalRates(flows, Lifetimes(3.0, 500.0), frozenset(Correction) - {Correction.LIFETIMES})
    for number in range(41):
        arrivals.observe(Arrived(), float(number))
    flow = flows[RequestKind("a", "interactive")]
    assert arrivals.coming(flow, 50.0)[:2] == (flow.estimate(50.0).per_s, 40.0)
