"""Request waiting time (QLM, SoCC'24 §5): how long a queue takes to drain, with its spread.

``W_q = Σ_{i<q} O_i / Θ`` with ``Σ O_i ~ N((q-1) μ, (q-1) σ²)``, so ``W_q ~ N((q-1) μ / Θ, (q-1) σ² / Θ²)``: the
relative error falls as 1/√q. Θ is the output-token throughput of the device for the model under continuous batching.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

PRIOR_TOKENS_PER_S = 50.0  # throughput assumed of a device that has not reported any


@dataclass(frozen=True, slots=True)
class Wait:
    """A predicted wait in seconds, normally distributed."""

    mean_s: float
    std_s: float

    def quantile(self, share: float) -> float:
        """Time that is not exceeded with this probability; never negative."""
        if self.std_s == 0:
            return self.mean_s
        return max(0.0, NormalDist(self.mean_s, self.std_s).inv_cdf(share))


def waiting_time(num_ahead: int, mean_tokens: float, std_tokens: float, tokens_per_s: float) -> Wait:
    """Wait behind ``num_ahead`` requests whose output lengths have this mean and spread."""
    return Wait(num_ahead * mean_tokens / tokens_per_s, num_ahead**0.5 * std_tokens / tokens_per_s)


def drain_s(output_tokens: float, tokens_per_s: float) -> float:
    """Time for a device to produce this many tokens; a device without history counts as PRIOR_TOKENS_PER_S."""
    return output_tokens / (tokens_per_s if tokens_per_s > 0 else PRIOR_TOKENS_PER_S)
