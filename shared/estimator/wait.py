"""A predicted wait: a normal distribution over seconds (QLM, SoCC'24 §5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Wait:
    """A predicted wait in seconds, normally distributed. Infinite where it will never end."""

    mean_s: float
    std_s: float

    def quantile(self, share: float) -> float:
        """Time that is not exceeded with this probability; never negative."""
        if self.std_s == 0:
            return self.mean_s
        return max(0.0, NormalDist(self.mean_s, self.std_s).inv_cdf(share))

    def then(self, other: Wait) -> Wait:
        """This wait, and behind it another that does not depend on it."""
        return Wait(self.mean_s + other.mean_s, math.hypot(self.std_s, other.std_s))

    def give_or_take(self, error: float) -> Wait:
        """The same by a model that errs by this share of the mean, as a standard deviation."""
        return Wait(self.mean_s, math.hypot(self.std_s, error * self.mean_s)) if self != NEVER else NEVER


NOW = Wait(0.0, 0.0)
NEVER = Wait(math.inf, 0.0)


def waiting_time(num_ahead: float, mean_tokens: float, std_tokens: float, tokens_per_s: float) -> Wait:
    """QLM's W_q: behind ``num_ahead`` requests whose output lengths have this mean and spread."""
    return Wait(num_ahead * mean_tokens / tokens_per_s, num_ahead**0.5 * std_tokens / tokens_per_s)
