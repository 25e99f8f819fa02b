"""What the last steps drew: puts tokens that bookkeeping has not seen into the plans that count on them.

A plan can so be submitted before the step that draws its input has run. Instead of a slot for each sequence, which
would have to be freed, the draws of the last `MAX_STEPS_AHEAD` steps are kept, each under the id of its sequence: a
plan asks for no older ones, because by then their results have come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from gpu_node.engine.border.plan import DRAWN, MAX_STEPS_AHEAD, Draw, ScheduledSequence


class Feedback:
    """Drawn tokens by sequence id, or whatever an executor names them by before they are drawn (its *marks*)."""

    def __init__(self) -> None:
        self._steps: deque[Mapping[int, int]] = deque(maxlen=MAX_STEPS_AHEAD)

    def remember(self, drawn: Mapping[int, int]) -> None:
        """A step was submitted: its draws' marks by sequence id. Called once for each step, in their order."""
        self._steps.appendleft(drawn)

    def token_ids(self, part: ScheduledSequence) -> tuple[int, ...]:
        """The part's tokens, with a mark in place of `DRAWN`."""
        if part.token_ids[-1] != DRAWN:
            return part.token_ids
        return (*part.token_ids[:-1], *self._last(part.sequence_id, 1))

    def output(self, part: ScheduledSequence, draw: Draw) -> list[int]:
        """The whole output before the draw: what bookkeeping knows of it, then the tokens drawn since."""
        known = list(draw.output_token_ids)
        num_missing = draw.position - len(known)
        if num_missing == 0:
            return known
        if part.token_ids[-1] == DRAWN:
            return [*known, *self._last(part.sequence_id, num_missing)]
        if num_missing != 1:  # where the row's own token is known, so are those before it
            raise ValueError(
                f"sequence {part.sequence_id}: a draw at position {draw.position} comes with an output of {len(known)}"
            )
        return [*known, part.token_ids[-1]]

    def _last(self, sequence_id: int, num_tokens: int) -> Sequence[int]:
        """The marks drawn last for a sequence, oldest first. `ValueError` if not so many are remembered."""
        found = list(islice((step[sequence_id] for step in self._steps if sequence_id in step), num_tokens))
        if len(found) < num_tokens:
            raise ValueError(
                f"sequence {sequence_id}: the plan counts on the last {num_tokens} drawn tokens; of the last "
                f"{MAX_STEPS_AHEAD} steps, {len(found)} drew for it"
            )
        return found[::-1]
