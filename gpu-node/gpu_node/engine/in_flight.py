"""A step in the executor's queue, as its engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.executor import PendingStep
from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.residents import Resident


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """Of one model."""

    resident: Resident
    plan: StepPlan
    pending: PendingStep
    follows: bool
    """There has been work since the step before it."""

    @property
    def is_constrained(self) -> bool:
        """What is drawn in it says what may be drawn next."""
        return any(draw.allowed or draw.is_mask_late for part in self.plan.sequences for draw in part.draws)

    @property
    def has_late_masks(self) -> bool:
        """What some of its draws may give is to be said yet."""
        return any(draw.is_mask_late for part in self.plan.sequences for draw in part.draws)

    @property
    def has_draft_tokens(self) -> bool:
        """Where its sequences go on hangs on what is drawn in it."""
        return any(part.num_draft_tokens for part in self.plan.sequences)
