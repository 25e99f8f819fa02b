"""Which requests have rows in a step, and in which order: prompts together with decodes, or in steps of their own."""

from __future__ import annotations

from gpu_node.engine.steps.advance import RowAdvance
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.step import Step
from gpu_node.engine.steps.intake import WaitingLine
from shared.config.engines.engine import EngineOptions


class RowOrder:
    """Of one model's requests."""

    def __init__(self, options: EngineOptions, roster: Roster, advance: RowAdvance, intake: WaitingLine) -> None:
        self._options = options
        self._roster = roster
        self._advance = advance
        self._intake = intake

    def schedule(self, step: Step, now: float) -> None:
        """Fill a step's budget, at time ``now``."""
        if self._options.chunked_prefill:
            self._schedule_together(step, now)
        else:
            self._schedule_apart(step, now)

    def _schedule_together(self, step: Step, now: float) -> None:
        """Decodes, then chunks of prompts with what they leave of the budget."""
        # In the order of admission the decodes come first by themselves: a prefill that is not finished has used up
        # the budget, so nothing was admitted behind it.
        if not self._advance.all(self._roster.running.values(), step, now):
            return  # memory has just run out
        num_next = self._intake.line_up(now)
        num_returned = self._intake.swap_in(num_next)
        if step.swaps_in:
            return  # what comes back is not to be read in the same step
        if num_returned and not step.has_rows:  # all of it was on the device still, and no other runs
            self._schedule_together(step, now)
        else:
            self._intake.admit(step, num_next - num_returned, now)

    def _schedule_apart(self, step: Step, now: float) -> None:
        """Prompts in steps of their own, ahead of decodes (vLLM 0.2.5, which AdaptiveLLM changes)."""
        running = self._roster.running.values()
        num_next = 0
        if self._advance.all([one for one in running if one.is_prefill], step, now):
            num_next = self._intake.line_up(now)
            self._intake.admit(step, num_next, now)
        if step.has_rows or step.swaps_in:  # behind what comes back, nothing may be swapped out in the same step
            return
        if self._advance.all([one for one in running if not one.is_prefill], step, now):
            num_returned = self._intake.swap_in(num_next)
            if num_returned and not step.swaps_in and not step.has_rows:
                self._schedule_apart(step, now)  # as above
