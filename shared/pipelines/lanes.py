"""Lanes of a device, and what an operator keeps of its speed with a part of the device (NanoFlow, OSDI'25, §4.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class ResourceLane(StrEnum):
    """The resource that an operator is bound by; in one lane, operators run one after another."""

    COMPUTE = "compute"
    MEMORY = "memory"
    NETWORK = "network"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Interference:
    """The exchange rate: for each lane, points (R, P) from (0, 0) to (1, 1), growing; between them, straight lines.

    R is the part of a product's speed that is given up for the operator, P what it then has of its own best speed. Of
    products, R = P by definition.
    """

    points: Mapping[ResourceLane, tuple[tuple[float, float], ...]]
    num_shares: int = 10
    """Parts of a device are multiples of one in so many: the columns of table 3, unless a profile has others."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Parts of a device that an operator may get."""
        return tuple(number / self.num_shares for number in range(1, self.num_shares + 1))

    def performance(self, lane: ResourceLane, share: float) -> float:
        """P of R."""
        for (low, slow), (high, fast) in pairwise(self.points[lane]):
            if share <= high + 1e-12:
                return slow + (fast - slow) * (share - low) / (high - low)
        raise ValueError(f"a part of a device is at most 1, not {share}")


_GEMV = ((0.0, 0.0), (0.1, 0.2), (0.2, 0.3), (0.4, 0.8), (0.8, 0.85), (0.9, 0.95), (1.0, 1.0))

TABLE_3 = Interference(
    {
        ResourceLane.COMPUTE: ((0.0, 0.0), (1.0, 1.0)),
        ResourceLane.MEMORY: _GEMV,
        ResourceLane.NETWORK: ((0.0, 0.0), (0.1, 0.3), (0.2, 0.5), (0.8, 0.9), (0.9, 1.0), (1.0, 1.0)),
        ResourceLane.COPY: _GEMV,
    }
)
"""Measured on an A100; of attention, the column at 0.4 is left out of the table and stands in §4.1.4: 80 %.

A copy to the host is a kernel that moves memory, so it is taken to be one of those (ours).
"""

UNDISTURBED = Interference(dict.fromkeys(ResourceLane, ((0.0, 1.0), (1.0, 1.0))), num_shares=len(ResourceLane))
"""As if each lane had a device of its own (stage I)."""
