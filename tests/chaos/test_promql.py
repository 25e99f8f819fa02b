"""The expressions of the chart's alerts mean what Prometheus says they mean."""

from __future__ import annotations

import pytest

from tests.chaos.checker.alerts import ALERTS, EXPECTED, alert_expressions
from tests.chaos.faults.catalogue import KINDS
from tests.chaos.history import Sample
from tests.chaos.promql.evaluator import Evaluator, Series
from tests.chaos.promql.parser import PromqlError, parse

A, B = "queue-manager", "queue-manager-2"


def value(expression: str, samples: list[Sample], at_s: float = 10.0) -> dict[str, float]:
    """By the labels that an answer has, without the instance where there are others."""
    answer = Evaluator(Series(samples)).vector(parse(expression), at_s)
    return {",".join(f"{name}={text}" for name, text in sorted(labels)): value for labels, value in answer.items()}


def sampled(member: str, at_s: float = 10.0, **metrics: float) -> Sample:
    return Sample(at_s=at_s, member=member, metrics={f'{name}{{service="s"}}': one for name, one in metrics.items()})


def test_sums_by_label_and_compares() -> None:
    samples = [sampled(A, held=0), sampled(B, held=0)]
    assert value("sum by (service) (held) < 1", samples) == {"service=s": 0.0}
    assert value("sum by (service) (held) < 1", [*samples, sampled("c", held=1)]) == {}


def test_a_series_that_nobody_answers_for_is_absent() -> None:
    samples = [sampled(A, 8.0, held=1), Sample(at_s=9.0, member=A)]
    assert value('absent(held{service="s"})', samples, 8.5) == {}
    assert value('absent(held{service="s"})', samples) == {"service=s": 1.0}
    assert value("absent(held)", [sampled(A, 5.0, held=1)]) == {"": 1.0}


def test_a_counter_grows_and_begins_anew() -> None:
    samples = [sampled(A, float(at_s), total=total) for at_s, total in [(1, 5), (2, 7), (3, 1), (4, 2)]]
    assert value("sum by (service) (increase(total[10s]))", samples, 4.0) == {"service=s": 4.0}
    assert value("sum by (service) (rate(total[10s]))", samples, 4.0) == {"service=s": 0.4}


def test_sets() -> None:
    samples = [sampled(A, one=1, other=3)]
    assert value("sum(one) > 2 or sum(other) > 2", samples) == {"": 3.0}
    assert value("max(one) < 2 and on () sum(other) > 0", samples) == {"": 1.0}
    assert value("max(one) < 2 and on () sum(other) > 9", samples) == {}


def test_matchers() -> None:
    samples = [Sample(at_s=10.0, member=A, metrics={'r{outcome="error"}': 2.0, 'r{outcome="ok"}': 6.0})]
    assert value('sum(r{outcome=~"error|lost"}) / sum(r)', samples) == {"": 0.25}
    assert value('sum(r{outcome!="error"})', samples) == {"": 6.0}


def test_quantiles_lie_evenly_within_their_bucket() -> None:
    buckets = {'h_bucket{le="1.0"}': 2.0, 'h_bucket{le="2.0"}': 6.0, 'h_bucket{le="+Inf"}': 8.0}
    samples = [Sample(at_s=10.0, member=A, metrics=buckets)]
    assert value("histogram_quantile(0.5, sum by (le) (h_bucket))", samples) == {"": 1.5}
    assert value("histogram_quantile(0.125, sum by (le) (h_bucket))", samples) == {"": 0.5}
    assert value("histogram_quantile(0.9, sum by (le) (h_bucket))", samples) == {"": 2.0}, "above, nothing is known"
    assert value("histogram_quantile(0.9, sum by (le) (other))", samples) == {}


def test_what_is_not_known_is_an_error() -> None:
    with pytest.raises(PromqlError, match="'quantile_over_time' is not known"):
        parse("quantile_over_time(0.9, r)")


def test_all_alerts_of_the_chart_can_be_evaluated_and_are_silent_without_samples_of_trouble() -> None:
    assert ALERTS.exists()
    evaluator = Evaluator(Series([sampled(A, held=1)]))
    firing = [name for name, tree in alert_expressions().items() if evaluator.vector(tree, 10.0)]
    assert {name for name in firing if "absent" not in str(name).lower()} <= {"TreadleNoLeader"}


def test_alerts_that_faults_must_raise_exist() -> None:
    assert {expected.alert for expected in EXPECTED.values()} <= alert_expressions().keys()
    assert EXPECTED.keys() <= KINDS.keys()
