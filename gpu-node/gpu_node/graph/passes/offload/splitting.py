"""A receiver's operators are split by what is measured, and again when that has drifted (Weaver, ATC'25, §4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_node.graph.passes.offload.poll_wait import expected_wait_s
from gpu_node.graph.passes.offload.split import SplitPlan
from gpu_node.graph.passes.offload.split_plan import plan_splits

DELAY_SHARE = 0.05
"""Of the sender's mean step, what all waits of one step may add up to."""
DRIFT = 0.2
"""A plan is made again when something that it rests on has changed by so much of itself."""


@dataclass(frozen=True, slots=True)
class OffloadProfile:
    """Means of what is measured of late, in seconds."""

    durations_s: Sequence[float]
    """T: of each operator of the receiver's program, whole."""
    local_s: float
    """K: of a layer's attention that the sender does itself while its task is away."""
    service_s: float
    """N: of a task, on the receiver."""
    sender_step_s: float
    num_tasks: int
    """Of a step of the sender: one a layer."""

    @property
    def slack_s(self) -> float:
        """K - N. Where a task takes longer than that, no split helps against it, and waits are all that is left."""
        return max(self.local_s - self.service_s, 0.0)

    @property
    def most_wait_s(self) -> float:
        """Of one task, on average."""
        return DELAY_SHARE * self.sender_step_s / self.num_tasks

    @property
    def wait_s(self) -> float:
        """Of one task, as long as nothing is split."""
        return expected_wait_s(self.durations_s, self.slack_s)

    def has_drifted_from(self, other: OffloadProfile) -> bool:
        """Whether a plan for ``other`` rests on what does not hold any more."""
        moved_s = sum(abs(one - before) for one, before in zip(self.durations_s, other.durations_s, strict=True))
        pairs = (
            (moved_s, sum(other.durations_s)),
            (abs(self.local_s - other.local_s), other.local_s),
            (abs(self.service_s - other.service_s), other.service_s),
            (abs(self.sender_step_s - other.sender_step_s), other.sender_step_s),
        )
        return self.num_tasks != other.num_tasks or any(moved > DRIFT * before for moved, before in pairs)


class Splitting:
    """Of one receiver's program for one sender."""

    def __init__(self, may_split: Sequence[bool]) -> None:
        """``may_split``: which of the program's operators can be cut."""
        self._may_split = may_split
        self._planned_for: OffloadProfile | None = None
        self.plan: SplitPlan = {}

    def observe(self, profile: OffloadProfile) -> bool:
        """Whether the plan is another one now; it is made anew only where the profile has drifted."""
        if self._planned_for is not None and not profile.has_drifted_from(self._planned_for):
            return False
        before, self._planned_for = self.plan, profile
        self.plan = plan_splits(self._may_split, profile.durations_s, profile.slack_s, profile.most_wait_s)
        return self.plan != before
