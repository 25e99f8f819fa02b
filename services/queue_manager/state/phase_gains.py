"""What other splits of the nodes of a model between the phases would have saved (`plans.phase_choice`)."""

from __future__ import annotations

import msgspec

TOGETHER = -1
"""Among the numbers of nodes that prefill: all nodes do both."""


class Gains(msgspec.Struct):
    """Of one model."""

    nodes: list[str] = []
    """Those that hold it, whom the sums are about."""
    seen_s: float = 0.0
    """Up to when they are summed up."""
    saved: dict[int, float] = {}
    """Promises, by the number of nodes that prefill in a split, or `TOGETHER`."""
