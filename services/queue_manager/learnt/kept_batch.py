"""How many requests really run together at a node whose batch is kept small, learnt online.

The limit of such a batch (`batch_limit`) is looked for among sizes that are a step of `shared.estimator.harm.GROWTH`
apart, and follows what is learnt of lengths: near the edge of two steps, a mean length that is a hundredth longer or
shorter moves it by a seventh, to and fro within seconds. Urgent requests begin beside the limit, which is for requests
with slack. A wait lasts for minutes, and what counts for it is not the limit of the moment but how many run in the
mean: a fading mean of the requests that ran while one with slack waited, under limits that were at most a step apart.
"""

from __future__ import annotations

import math

import msgspec

from shared.estimator.harm import next_size

MEMORY_S = 240.0  # as long as waits behind a small batch; what is older counts less than 1/e
PRIOR_S = 10.0  # for so long as many ran as the limit says


class KeptBatch(msgspec.Struct, frozen=True, array_like=True):
    """Fading integrals over seconds in which the batch of a node was kept small."""

    model: str = ""
    limit: int = 0
    """As it was seen last."""
    seconds: float = 0.0
    running_s: float = 0.0
    """Requests that ran, times seconds."""

    def seen(self, model: str, limit: int, num_running: int, seconds: float) -> KeptBatch:
        """For so many seconds more, so many ran beside this limit. Beside quite another one it begins anew."""
        before = self if self._holds(model, limit) else KeptBatch(model, limit)
        kept = math.exp(-seconds / MEMORY_S)
        return KeptBatch(model, limit, kept * before.seconds + seconds, kept * before.running_s + seconds * num_running)

    def expected(self, model: str, limit: int) -> int:
        """Requests that will run together while the limit is about this."""
        if not self._holds(model, limit):
            return limit
        return round((PRIOR_S * limit + self.running_s) / (PRIOR_S + self.seconds))

    def _holds(self, model: str, limit: int) -> bool:
        """Whether what was seen tells of this limit, too."""
        less, more = sorted((self.limit, limit))
        return model == self.model and more <= next_size(less)
