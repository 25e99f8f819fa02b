"""What guessed tokens cost a step: learnt from steps that had some, beside what the learnt step cost says of rows.

Rows of guesses draw, which rows of prompts do not, and few rows more may be dearer or cheaper than many. And a step
with guesses is taken in before the next is planned, so the device waits for its host behind it.
"""

from __future__ import annotations

from gpu_node.engine.border.plan import StepPlan
from shared.messages.step_cost import StepCost

MEMORY_STEPS = 64
"""Steps after which one weighs 1/e."""
LEAST_RATIO, MOST_RATIO = 0.25, 8.0
"""Of measured to predicted seconds of rows; what lies outside says more of the machine than of rows."""


class DraftCosts:
    """Of one model on one device."""

    def __init__(self) -> None:
        self._measured_s = self._predicted_s = 0.0
        self._waits_s = {False: 0.0, True: 0.0}  # behind steps without guesses, and with
        self._num_waits = {False: 0, True: 0}
        self._had_drafts = False

    @property
    def row_ratio(self) -> float:
        """By how much a guessed row is dearer than any row."""
        if not self._predicted_s:
            return 1.0
        return min(max(self._measured_s / self._predicted_s, LEAST_RATIO), MOST_RATIO)

    @property
    def wait_s(self) -> float:
        """How much longer the device waits behind a step with guesses than behind one without."""
        return max(0.0, self._waits_s[True] - self._waits_s[False])

    def observe(self, plan: StepPlan, duration_s: float, waited_s: float, cost: StepCost | None) -> None:
        """A step has run in ``duration_s``, before which the device had waited ``waited_s`` for its host.

        ``cost``: of steps, as far as it was known before.
        """
        had_drafts, num_rows = self._had_drafts, plan.num_draft_tokens
        self._num_waits[had_drafts] = min(self._num_waits[had_drafts] + 1, MEMORY_STEPS)
        self._waits_s[had_drafts] += (waited_s - self._waits_s[had_drafts]) / self._num_waits[had_drafts]
        self._had_drafts = num_rows > 0
        if not num_rows or cost is None:
            return
        plain_s = predicted_s(plan, cost, with_drafts=False)
        keep = 1 - 1 / MEMORY_STEPS
        self._measured_s = keep * self._measured_s + max(0.0, duration_s + waited_s - plain_s)
        self._predicted_s = keep * self._predicted_s + predicted_s(plan, cost, with_drafts=True) - plain_s


def predicted_s(plan: StepPlan, cost: StepCost, *, with_drafts: bool) -> float:
    """Of a plan, with the rows of guesses or without."""
    num_rows, context, attended = plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens
    if not with_drafts:
        for part in plan.sequences:
            num_rows -= part.num_draft_tokens
            context -= part.num_draft_tokens
            end = part.start + len(part.token_ids)
            attended -= sum(range(end - part.num_draft_tokens + 1, end + 1))
    return cost.predict_s(num_rows, context, attended, plan.num_remote_tokens)
