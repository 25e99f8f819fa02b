"""Times of a modest tenant beside a greedy one, and by how much the greedy one moves them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

GREEDY, MODEST, ONE, THREE = "greedy", "modest", "one", "three"
TIMES = 100  # of its share, that the greedy tenant asks for
GOAL = 0.10  # by which the modest one's 99th percentile may move
MODEST_PER_S = 5.0  # a third of its share of the live half's node
NUM_SEQS = 32  # of a node, as in the default configuration


@dataclass
class Times:
    """Of the modest tenant's answers, in seconds."""

    ttft_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)
    num_failed: int = 0

    def figures(self) -> dict[str, Any]:
        """Medians and 99th percentiles."""
        found: dict[str, Any] = {"num": len(self.e2e_s), "num_failed": self.num_failed}
        for name, values in (("ttft", self.ttft_s), ("e2e", self.e2e_s)):
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            found |= {f"{name}_p50_s": round(cuts[49], 4), f"{name}_p99_s": round(cuts[98], 4)}
        return found


def moved(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By how much the greedy tenant moves the modest one's 99th percentiles, as a part of what they are otherwise."""
    greedy = figures["greedy"]
    found: dict[str, Any] = {
        f"{name}_p99_beside_{case}": round(greedy[f"{name}_p99_s"] / figures[case][f"{name}_p99_s"] - 1, 3)
        for name in ("ttft", "e2e")
        for case in ("share", "alone")
    }
    return found | {"is_within_goal": all(found[f"{name}_p99_beside_share"] <= GOAL for name in ("ttft", "e2e"))}
