"""Percentiles against values worked out by hand."""

from __future__ import annotations

import pytest

from cli.bench.percentiles import percentile, summary


@pytest.mark.parametrize(
    ("ordered", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 50, 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 90, 4.6),  # place 3.6 of 0..4
        ([1.0, 2.0, 3.0, 4.0, 5.0], 100, 5.0),
    ],
)
def test_percentile(ordered: list[float], percent: float, expected: float) -> None:
    assert percentile(ordered, percent) == pytest.approx(expected)


def test_summary_sorts_and_takes_the_mean() -> None:
    found = summary([30.0, 10.0, 20.0])
    assert found is not None
    assert found == pytest.approx({"mean": 20.0, "p50": 20.0, "p90": 28.0, "p95": 29.0, "p99": 29.8})


def test_nothing_measured_is_none() -> None:
    assert summary([]) is None
