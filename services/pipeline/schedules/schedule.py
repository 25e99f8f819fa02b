"""When each part of an operator runs, with which part of the device, in every layer alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from services.pipeline.operators.layer import Edge, NanoOperator
from shared.pipelines.lanes import Interference
from shared.pipelines.periodic import NUM_UNROLLED, TOLERANCE_S

ROUNDING = 1e-6
"""Of a sum of shares."""


@dataclass(frozen=True, slots=True)
class PartSlot:
    """One part of an operator in layer 0; layer n is n periods later."""

    part: NanoOperator
    start_s: float
    duration_s: float
    share: float

    @property
    def end_s(self) -> float:
        """When it is done."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """A layer after another, each ``period_s`` behind the one before."""

    period_s: float
    slots: tuple[PartSlot, ...]

    @property
    def span_s(self) -> float:
        """From the first start of a layer to its last end; neighbours overlap, so it may be more than the period."""
        return max(slot.end_s for slot in self.slots) - min(slot.start_s for slot in self.slots)

    def makespan_s(self, num_layers: int) -> float:
        """Of so many layers."""
        return (num_layers - 1) * self.period_s + self.span_s

    def check(self, edges: Sequence[Edge], interference: Interference | None) -> None:
        """Assert that it can be run; without ``interference``, that each operator has the device as if alone.

        Parents end before children start; lanes are not used twice; durations are D_best / P(R); the sum of R is at
        most 1 at any time.
        """
        for edge in edges:
            parent, child = self.slots[edge.parent], self.slots[edge.child]
            start_s = child.start_s + edge.lag * self.period_s
            assert parent.end_s <= start_s + TOLERANCE_S, f"{child.part} starts before {parent.part} ends"
        for slot in self.slots:
            share = 1.0 if interference is None else interference.performance(slot.part.lane, slot.share)
            assert abs(slot.duration_s * share - slot.part.best_s) < TOLERANCE_S, f"{slot.part} takes D / P(R)"
        unrolled = self._unrolled()
        for (start_s, end_s, slot), (other_start_s, other_end_s, other) in combinations(unrolled, 2):
            if slot.part.lane is other.part.lane:
                assert end_s <= other_start_s + TOLERANCE_S or other_end_s <= start_s + TOLERANCE_S, (
                    f"{slot.part} and {other.part} share a lane"
                )
        if interference is not None:
            used = self.most_used()
            assert used <= 1 + ROUNDING, f"{used:.2f} of the device are used at once"

    def most_used(self) -> float:
        """The largest sum of R at any time."""
        unrolled = self._unrolled()
        return max(
            sum(slot.share for start_s, end_s, slot in unrolled if start_s <= at_s + 2 * TOLERANCE_S < end_s)
            for at_s, _, _ in unrolled
        )

    def _unrolled(self) -> list[tuple[float, float, PartSlot]]:
        return [
            (slot.start_s + layer * self.period_s, slot.end_s + layer * self.period_s, slot)
            for layer in range(-NUM_UNROLLED, NUM_UNROLLED + 1)
            for slot in self.slots
        ]

    def idle_s(self, lane: str) -> float:
        """Time of a period in which a lane does nothing."""
        return self.period_s - sum(slot.duration_s for slot in self.slots if slot.part.lane == lane)
