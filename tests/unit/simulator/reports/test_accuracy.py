"""What a run tells of the estimator: R² behind long queues only, and only where waits differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.recording import Prediction
from services.simulator.reports.accuracy import LONG_QUEUE, MIN_JUDGED, estimator_accuracy
from services.simulator.workloads.request import WorkloadRequest


def outcomes(waits_s: Sequence[float], gap_s: float = 0.001, model: str = "m") -> list[ClientOutcome]:
    """Requests that come one after the other and wait so long."""
    found = []
    for number, wait_s in enumerate(waits_s):
        sent_s = number * gap_s
        request = WorkloadRequest(sent_s, model, "interactive", 10, 10)
        start_s = sent_s + wait_s
        found.append(
            ClientOutcome(number, request, sent_s, started_s=start_s, first_token_s=start_s, finished_s=start_s)
        )
    return found


def told(waits_s: Sequence[float], *, off_s: float = 0.0) -> list[Prediction]:
    return [Prediction(number, wait_s + off_s, wait_s + 1.0) for number, wait_s in enumerate(waits_s)]


def followed(surge: list[ClientOutcome]) -> list[ClientOutcome]:
    """As many come behind, which are not judged."""
    last = surge[-1].sent_s
    behind = outcomes([900.0] * len(surge))
    return [*surge, *(replace(one, number=len(surge) + one.number, sent_s=last + 1.0 + one.sent_s) for one in behind)]


SURGE = [number / 2 for number in range(LONG_QUEUE + 2 + MIN_JUDGED)]  # the first starts at once


def test_behind_a_long_queue_the_error_is_compared_with_the_spread() -> None:
    found = estimator_accuracy(told(SURGE, off_s=2.0), followed(outcomes(SURGE)))
    spread = sum((step - (MIN_JUDGED - 1) / 2) ** 2 for step in range(MIN_JUDGED)) / 4
    assert found["estimator_r2"] == pytest.approx(1 - MIN_JUDGED * 4 / spread)
    assert found["estimator_mean_error_s"] == pytest.approx(2.0)
    assert (found["num_predictions_behind_long_queues"], found["num_predictions"]) == (MIN_JUDGED, len(SURGE))
    assert found["estimator_p90_coverage"] == 1.0


def test_errors_to_either_side_do_not_make_up_for_each_other() -> None:
    """A second too long and three too short, in turn: squares of 5 in the mean, and 2 s without their signs."""
    predictions = [
        Prediction(number, wait_s + (-3.0 if number % 2 else 1.0), wait_s) for number, wait_s in enumerate(SURGE)
    ]
    found = estimator_accuracy(predictions, followed(outcomes(SURGE)))
    spread = sum((step - (MIN_JUDGED - 1) / 2) ** 2 for step in range(MIN_JUDGED)) / 4
    assert found["estimator_r2"] == pytest.approx(1 - MIN_JUDGED * 5 / spread)
    assert found["estimator_mean_error_s"] == pytest.approx(2.0)


def test_a_wait_that_is_as_long_as_its_bound_is_within_it() -> None:
    bounds_s = [2.0, 1.75, 1.5, 3.0]  # of waits of 2 s: the second and the third are exceeded
    predictions = [Prediction(number, 0.0, bound_s) for number, bound_s in enumerate(bounds_s)]
    run = followed(outcomes([2.0] * 4, gap_s=1.0))
    assert estimator_accuracy(predictions, run)["estimator_p90_coverage"] == 0.5


def test_one_wait_less_is_too_few_to_judge() -> None:
    short = SURGE[:-1]
    found = estimator_accuracy(told(short), followed(outcomes(short)))
    assert (found["estimator_r2"], found["num_predictions_behind_long_queues"]) == (None, MIN_JUDGED - 1)


def test_where_everybody_starts_at_once_nothing_is_said_of_the_order() -> None:
    waits_s = [0.05] * 500
    found = estimator_accuracy(told(waits_s, off_s=3.0), followed(outcomes(waits_s, gap_s=1.0)))
    assert (found["estimator_r2"], found["estimator_mean_error_s"]) == (None, None)
    assert (found["num_predictions_behind_long_queues"], found["estimator_p90_coverage"]) == (0, 1.0)


def test_equal_waits_behind_a_long_queue_have_no_spread() -> None:
    waits_s = [50.0] * len(SURGE)
    found = estimator_accuracy(told(waits_s, off_s=1.0), followed(outcomes(waits_s)))
    assert (found["estimator_r2"], found["num_predictions_behind_long_queues"]) == (None, MIN_JUDGED + 1)


def test_waits_that_differ_by_a_second_on_average_are_spread_enough() -> None:
    waits_s = [49.0 if number % 2 else 51.0 for number in range(len(SURGE) - 1)]
    found = estimator_accuracy(told(waits_s, off_s=2.0), followed(outcomes(waits_s, gap_s=2.0**-10)))
    # thirty waits of 50 ± 1 s, each predicted 2 s too long: 1 - 4 / 1
    assert (found["num_predictions_behind_long_queues"], found["estimator_r2"]) == (MIN_JUDGED, -3.0)


def test_a_queue_is_long_with_more_than_a_hundred() -> None:
    """As in docs/performance.md, whose figures are of these."""
    assert (LONG_QUEUE, MIN_JUDGED) == (100, 30)


def test_who_comes_last_is_not_judged() -> None:
    run = outcomes([5.0] * 10)
    found = estimator_accuracy([Prediction(number, 400.0, 900.0) for number in (3, 4, 5, 9)], run)
    assert (found["num_predictions"], found["estimator_p90_coverage"]) == (2, 1.0)
    assert estimator_accuracy([Prediction(number, 1.0, 2.0) for number in (3, 4)], run)["estimator_p90_coverage"] == 0.0


def test_the_queue_is_that_of_the_own_model() -> None:
    many = outcomes(SURGE)
    [other] = outcomes([0.0], model="other")
    late = replace(other, number=len(SURGE), sent_s=2.0, started_s=2.0, first_token_s=2.0)
    found = estimator_accuracy([Prediction(len(SURGE), 9.0, 9.5)], followed([*many, late]))
    assert (found["num_predictions_behind_long_queues"], found["num_predictions"]) == (0, 1)


def test_who_had_no_token_is_not_judged() -> None:
    [lost, _] = outcomes([0.0, 0.0])
    lost.first_token_s = None
    found = estimator_accuracy([Prediction(0, 1.0, 2.0)], [lost, _])
    assert (found["num_predictions"], found["estimator_p90_coverage"]) == (0, None)
