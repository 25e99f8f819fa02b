"""Requests that are refused because their promise cannot be kept: their clients hear at once, and not late.

A class that says ``late: refuse`` has its requests refused when they are likelier than not to miss: at the median of
the prediction, which is the mean of a normal distribution. A more careful quantile would refuse requests that would
mostly have been in time; it is for clients to know (`QueueStatus`), not for us to decide by. A model that no node
holds is no reason to refuse: its swap is a part of the predicted wait.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.queue_manager.waits.predictions import Predictions
from shared.config.services.clients import SloClass
from shared.messages.requests.requests import Rejected, Submit
from shared.messages.requests.slo import Slo

MIN_RETRY_AFTER_S = 1.0  # a refused client does not come back sooner: the prediction is no better than that


class Refusals:
    """Judges first attempts. A later attempt was promised an answer already."""

    def __init__(self, slo_classes: Mapping[str, SloClass], predictions: Predictions) -> None:
        self._refusing = {name for name, slo_class in slo_classes.items() if slo_class.late == "refuse"}
        self._predictions = predictions

    def refusal(self, message: Submit, now: float) -> Rejected | None:
        """Why not to accept the request; None to accept it, also while nothing is known to predict with."""
        if message.attempt > 0 or message.slo.name not in self._refusing:
            return None
        prospect = self._predictions.of_newcomer(message, now)
        if prospect is None or not prospect.is_learnt:
            return None
        late_s = lateness_s(message.slo, prospect.first_token.mean_s, prospect.completion.mean_s)
        if late_s <= 0:
            return None
        return Rejected(
            request_id=message.request_id,
            attempt=message.attempt,
            wait_s=prospect.first_token.mean_s,
            retry_after_s=max(MIN_RETRY_AFTER_S, late_s),  # a queue to which none comes drains a second a second
        )


def lateness_s(slo: Slo, first_token_s: float, completion_s: float) -> float:
    """By how much a promise is missed, in seconds; at most 0.0 where it is kept. Times count from the arrival."""
    misses = [
        time_s - bound_s
        for time_s, bound_s in ((first_token_s, slo.ttft_s), (completion_s, slo.deadline_s))
        if bound_s is not None
    ]
    return max(misses, default=0.0)
