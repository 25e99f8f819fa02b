"""How many rows a sequence that decodes has in a step, and how many tokens it gets: told in heartbeats, since waits are
predicted by it.

Fading sums over the steps of sequences, whether anything was guessed for them or not: of guesses in some steps alone,
the mean would be too high. A step that draws behind a prompt is left out, for it brings one token whatever is guessed.
"""

from __future__ import annotations

from shared.messages.nodes.step_cost import DecodeYield

MEMORY_STEPS = 2_000  # of sequences; a step this long ago weighs 1/e of the present one
LEAST_STEPS = 64  # before so many, nothing is told: some texts repeat themselves and some do not


class YieldLearner:
    """Of one model on one device."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._steps = self._rows = self._tokens = 0.0

    @property
    def decode(self) -> DecodeYield | None:
        """Means of late; None while too little has been seen."""
        if self._num_steps < LEAST_STEPS:
            return None
        return DecodeYield(self._rows / self._steps, self._tokens / self._steps)

    def observe(self, num_rows: int, num_tokens: int) -> None:
        """A sequence has decoded: so many rows, of which so many tokens were kept."""
        keep = 1 - 1 / MEMORY_STEPS
        self._num_steps += 1
        self._steps = keep * self._steps + 1
        self._rows = keep * self._rows + num_rows
        self._tokens = keep * self._tokens + num_tokens
