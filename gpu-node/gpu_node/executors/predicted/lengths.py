"""Lengths of conversations, as lognormal distributions fitted to ShareGPT.

Fitted by moments to the 55,857 ShareGPT conversations of efeslab/Nanoflow (`datasets/traces`) with at most 2,048
tokens: input 154.6 ± 301.3, output 317.9 ± 238.5 tokens. A lognormal with mean m and deviation s has
σ² = ln(1 + s²/m²) and μ = ln m - σ²/2. (PagedAttention, §6.1, names means of 161 and 338.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths whose logarithm is normal."""

    mu: float
    sigma: float

    @classmethod
    def of_moments(cls, mean: float, deviation: float) -> LogNormal:
        """The one with this mean and standard deviation."""
        variance = math.log1p((deviation / mean) ** 2)
        return cls(math.log(mean) - variance / 2, math.sqrt(variance))

    def tokens(self, probability: float) -> int:
        """The length below which ``probability`` of all lie; whole, and at least 1."""
        normal = NormalDist(self.mu, self.sigma)
        return max(1, round(math.exp(normal.inv_cdf(probability))))


SHAREGPT_INPUT = LogNormal.of_moments(154.6, 301.3)
SHAREGPT_OUTPUT = LogNormal.of_moments(317.9, 238.5)
