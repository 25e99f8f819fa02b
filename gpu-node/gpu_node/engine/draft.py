"""A step while it is being planned: what was put in can be taken out again when its request is preempted."""

from __future__ import annotations

from gpu_node.engine.plan import BlockCopy, ScheduledSequence, StepPlan


class StepDraft:
    """Collects the parts of one step within a budget of tokens."""

    def __init__(self, budget_tokens: int) -> None:
        self.num_left_tokens = budget_tokens
        self._parts: dict[int, tuple[ScheduledSequence, tuple[BlockCopy, ...]]] = {}

    def add(self, sequence: ScheduledSequence, copies: tuple[BlockCopy, ...]) -> None:
        """Schedule a sequence after those that are in already."""
        assert sequence.sequence_id not in self._parts
        assert 0 < len(sequence.token_ids) <= self.num_left_tokens
        self._parts[sequence.sequence_id] = (sequence, copies)
        self.num_left_tokens -= len(sequence.token_ids)

    def discard(self, sequence_id: int) -> None:
        """Take a sequence out, if it is in; its tokens go back to the budget and its copies are not made."""
        sequence, _ = self._parts.pop(sequence_id, (None, ()))
        if sequence is not None:
            self.num_left_tokens += len(sequence.token_ids)

    def plan(self) -> StepPlan:
        """The step as it stands."""
        parts = self._parts.values()
        return StepPlan(tuple(part for part, _ in parts), tuple(copy for _, copies in parts for copy in copies))
