from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from gateway.inflight.timeline import Timeline
from gateway.metrics.metrics import GatewayMetrics
from shared.messages.requests.slo import Slo
from shared.telemetry.label_cap import MAX_LABEL_SETS


def timeline(*tokens: tuple[int, float]) -> Timeline:
    times = Timeline(arrival_s=10.0)
    for num_tokens, now in tokens:
        times.add(num_tokens, now)
    return times


def test_times_are_counted_from_arrival() -> None:
    times = timeline((1, 11.0), (2, 12.0), (0, 99.0), (2, 13.0))
    assert (times.ttft_s, times.tpot_s, times.e2e_s, times.num_tokens) == (1.0, 0.5, 3.0, 5)


def test_choices_come_at_the_same_time_so_the_longest_says_how_fast_each_is() -> None:
    times = timeline((1, 11.0), (2, 13.0))
    times.add(1, 12.0, choice=1)
    times.add(4, 15.0, choice=1)
    assert (times.ttft_s, times.tpot_s, times.e2e_s, times.num_tokens) == (1.0, 1.0, 5.0, 8)


def test_one_token_has_no_time_per_token_and_none_has_no_time_at_all() -> None:
    assert timeline((1, 11.0)).tpot_s is None
    assert (timeline().ttft_s, timeline().e2e_s) == (None, None)


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo(name="x"), True),
        (Slo(name="x", ttft_s=1, tpot_s=0.5, deadline_s=3), True),
        (Slo(name="x", ttft_s=0.9), False),
        (Slo(name="x", tpot_s=0.4), False),
        (Slo(name="x", deadline_s=2.9), False),
    ],
)
def test_each_part_of_a_promise_must_be_kept(slo: Slo, kept: bool) -> None:
    assert timeline((1, 11.0), (4, 13.0)).keeps(slo) is kept


def test_an_answer_without_tokens_keeps_nothing() -> None:
    assert not timeline().keeps(Slo(name="x"))


def test_labels_beyond_the_cap_are_counted_as_other() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    for number in range(MAX_LABEL_SETS + 5):
        metrics.count(("m", "c", f"tenant-{number}"), "ok")
    metrics.count(("m", "c", "tenant-0"), "ok")
    other = {"model": "other", "slo_class": "other", "tenant": "other", "outcome": "ok"}
    first = {"model": "m", "slo_class": "c", "tenant": "tenant-0", "outcome": "ok"}
    assert registry.get_sample_value("treadle_requests_total", other) == 5
    assert registry.get_sample_value("treadle_requests_total", first) == 2
