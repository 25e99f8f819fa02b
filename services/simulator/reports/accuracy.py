"""Predicted against actual waits of a run, and only what such a run can tell.

A wait is a sum over those who are ahead, so it can be foretold where many are: QLM (SoCC'24, §8) judges its estimator
over long queues. R² compares errors with the spread of the waits. Where nearly all start at once there is no
spread, and a number far below 0 would say that of the run and nothing of the estimator. A run ends, which none
foresees: who comes last is predicted to be overtaken by others, who never come. So the first half is judged.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.recording import Prediction

LONG_QUEUE = 100  # of a model, ahead of a request when it comes: as in docs/performance.md
JUDGED_SHARE = 0.5  # of the requests: behind each as many come
MIN_JUDGED = 30  # predictions behind long queues: below, R² hangs on one of them
MIN_SPREAD_S = 1.0  # standard deviation of their waits; less is what any swap of models takes

_Pair = tuple[Prediction, float]


def estimator_accuracy(predictions: Sequence[Prediction], outcomes: Sequence[ClientOutcome]) -> dict[str, float | None]:
    """R² and mean absolute error behind long queues, None where there are too few to judge; the bound over all judged.

    ``outcomes``: of all requests, which are numbered in the order in which they came.
    """
    by_number = {one.number: one for one in outcomes if one.number < JUDGED_SHARE * len(outcomes)}
    pairs = [
        (prediction, outcome.first_token_s - outcome.sent_s)
        for prediction in predictions
        if (outcome := by_number.get(prediction.number)) is not None and outcome.first_token_s is not None
    ]
    queues = {model: _Queue([one for one in outcomes if one.request.model == model]) for model in _models(outcomes)}
    behind = [pair for pair in pairs if _num_ahead(by_number[pair[0].number], queues) > LONG_QUEUE]
    can_judge = len(behind) >= MIN_JUDGED and statistics.pstdev(actual_s for _, actual_s in behind) >= MIN_SPREAD_S
    within = sum(actual_s <= prediction.wait_p90_s for prediction, actual_s in pairs)
    return {
        "estimator_r2": _r_squared(behind) if can_judge else None,
        "estimator_mean_error_s": _mean_error_s(behind) if can_judge else None,
        "num_predictions_behind_long_queues": len(behind),
        "estimator_p90_coverage": within / len(pairs) if pairs else None,
        "num_predictions": len(pairs),
    }


class _Queue:
    """When the requests of a model came and started."""

    def __init__(self, outcomes: Sequence[ClientOutcome]) -> None:
        self.sent_s = sorted(outcome.sent_s for outcome in outcomes)
        self.started_s = sorted(outcome.started_s for outcome in outcomes if outcome.started_s is not None)


def _models(outcomes: Sequence[ClientOutcome]) -> set[str]:
    return {outcome.request.model for outcome in outcomes}


def _num_ahead(outcome: ClientOutcome, queues: dict[str, _Queue]) -> int:
    queue = queues[outcome.request.model]
    return bisect_left(queue.sent_s, outcome.sent_s) - bisect_right(queue.started_s, outcome.sent_s)


def _r_squared(pairs: Sequence[_Pair]) -> float:
    """Coefficient of determination of the predictions themselves, not of a line through them."""
    mean_s = statistics.mean(actual_s for _, actual_s in pairs)
    residual = sum((actual_s - prediction.wait_s) ** 2 for prediction, actual_s in pairs)
    return 1 - residual / sum((actual_s - mean_s) ** 2 for _, actual_s in pairs)


def _mean_error_s(pairs: Sequence[_Pair]) -> float:
    return statistics.mean(abs(actual_s - prediction.wait_s) for prediction, actual_s in pairs)
