"""A run of steps in which nothing happens but that all sequences of a batch draw one token each."""

from __future__ import annotations

from dataclasses import dataclass

from shared.messages.nodes.step_cost import StepCost


@dataclass(slots=True)
class StepSpan:
    """Its steps, and when each of them is over: each is longer than the one before it by what the contexts grew."""

    start_s: float
    cost: StepCost
    num_sequences: int
    num_context_tokens: int
    """Of the first step; each sequence has one row, which attends to all that is read."""
    num_steps: int
    num_applied: int = 0
    """Steps that the books have taken in."""

    def step_s(self, step: int) -> float:
        """Duration of one step; the first is step 0."""
        num_context_tokens = self.num_context_tokens + step * self.num_sequences
        return self.cost.predict_s(self.num_sequences, num_context_tokens, num_context_tokens)

    def end_s(self, num_steps: int) -> float:
        """When so many steps are over."""
        grown = self.cost.decode_context_token_s * self.num_sequences * (num_steps * (num_steps - 1) // 2)
        return self.start_s + num_steps * self.step_s(0) + grown

    def num_ended(self, now: float) -> int:
        """Steps that are over at a time. O(log steps)."""
        least, most = 0, self.num_steps
        while least < most:
            middle = (least + most + 1) // 2
            if self.end_s(middle) <= now:
                least = middle
            else:
                most = middle - 1
        return least
