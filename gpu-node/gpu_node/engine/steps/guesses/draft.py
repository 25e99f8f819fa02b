"""Rows of the step that is drafted: whether blocks have room for them, and what they write."""

from __future__ import annotations

from collections.abc import Sequence as AnySequence
from itertools import islice

from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.rows import draw_of, draws_behind, scheduled_rows
from gpu_node.engine.steps.batch.step import Guess, Step, StepPart


class RowDraft:
    """Puts rows of running requests into a step."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._blocks = roster.blocks

    def has_room(self, sequence: Sequence, end: int) -> bool:
        """Whether enough blocks are free to compute the sequence up to ``end``."""
        return self._blocks.has_room(sequence.sequence_id, sequence.num_computed_tokens, end)

    def add(
        self, request: EngineRequest, sequence: Sequence, end: int, step: Step, guesses: AnySequence[Guess] = ()
    ) -> None:
        """Put the rows up to ``end`` into the step. Where the leader has computed what all share, the others fork.

        ``guesses`` follow the last token of a sequence that is known.
        """
        copies = self._blocks.append(sequence.sequence_id, sequence.num_computed_tokens, end + len(guesses))
        forks = not request.is_forked and end == request.num_shared_tokens
        group = request.sequences if forks else [sequence]
        drawing = [one for one in group if end == len(one.token_ids) + one.num_drawn_tokens]
        draw_ids = tuple(islice(self._roster.sequence_ids, len(guesses)))
        draws = (*(draw_of(request, one) for one in drawing), *draws_behind(request, sequence, guesses, draw_ids))
        table = self._blocks.table(sequence.sequence_id)
        is_remote = self._blocks.remote.has(sequence.sequence_id)
        rows = scheduled_rows(sequence, end, table, draws, guesses, is_remote=is_remote, adapter=request.adapter)
        sequence.num_computed_tokens = end
        sequence.num_draft_tokens = len(guesses)
        if forks:
            self._roster.fork(request)
        for one in group:
            part = StepPart(request, one, end, one in drawing, None)
            if one is sequence:
                part.scheduled, part.copies = rows, copies
                part.draft_token_ids = tuple(guess.token_id for guess in guesses)
                part.draft_draw_ids = draw_ids
            step.add(part)
        for one in drawing:
            one.num_drawn_tokens += 1
