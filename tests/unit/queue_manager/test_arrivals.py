"""How fast work is learnt to arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from services.queue_manager.arrivals import LEAST_SEEN_S, MAX_FLOWS, MEMORY_S, Arrivals, Flow
from shared.slo import Slo

SOON = Slo("interactive", deadline_s=20.0)


@dataclass
class Arrived:
    model: str = "a"
    slo: Slo = SOON
    prompt_tokens: int = 10
    max_tokens: int = 100


def flow_of(*times_s: float) -> Flow:
    flows: dict[str, Flow] = {}
    for time_s in times_s:
        Arrivals(flows).observe(Arrived(), time_s)
    return flows["a interactive"]


def test_one_request_is_no_stream() -> None:
    assert flow_of(0.0).rate_per_s(30.0) == pytest.approx(0.0, abs=1e-12)


def test_a_burst_counts_as_if_it_had_lasted_a_while() -> None:
    """Four behind the first, over the faded length of 10 s."""
    flow = flow_of(*[0.0] * 5)
    assert flow.rate_per_s(0.0) == pytest.approx(4 / (MEMORY_S * (1 - math.exp(-LEAST_SEEN_S / MEMORY_S))))


def test_an_even_stream_has_its_rate() -> None:
    flow = flow_of(*(number / 2 for number in range(1000)))
    assert flow.rate_per_s(499.75) == pytest.approx(2.0, rel=0.01)


def test_the_rate_fades_when_nobody_comes() -> None:
    flow = flow_of(*(number / 2 for number in range(1000)))
    assert flow.rate_per_s(499.5 + MEMORY_S) == pytest.approx(2.0 * math.exp(-1), rel=0.01)


def test_a_stream_is_expected_to_last_as_long_as_it_has() -> None:
    flow = flow_of(5.0, 6.0, 45.0)
    assert flow.lasts_s(6.0) == LEAST_SEEN_S
    assert flow.lasts_s(45.0) == 40.0


def test_after_a_lull_it_begins_anew() -> None:
    flow = flow_of(0.0, 1.0, 2.0, 2.0 + MEMORY_S + 1)
    assert (flow.since_s, flow.num) == (2.0 + MEMORY_S + 1, 1.0)


def test_what_comes_is_described_by_its_means() -> None:
    flows: dict[str, Flow] = {}
    arrivals = Arrivals(flows)
    arrivals.observe(Arrived(prompt_tokens=10, max_tokens=100), 0.0)
    arrivals.observe(Arrived(prompt_tokens=30, max_tokens=300), 0.0)
    (flow,) = arrivals.of_model("a")
    assert (flow.prompt_tokens / flow.num, flow.square_prompt_tokens / flow.num) == (20.0, 500.0)
    assert (flow.limit_tokens / flow.num, flow.patience_s / flow.num) == (200.0, 20.0)
    assert not list(arrivals.of_model("b"))


def test_the_oldest_are_forgotten() -> None:
    flows: dict[str, Flow] = {}
    for number in range(MAX_FLOWS + 1):
        Arrivals(flows).observe(Arrived(model=f"m{number}"), float(number))
    assert len(flows) == MAX_FLOWS
    assert "m0 interactive" not in flows
