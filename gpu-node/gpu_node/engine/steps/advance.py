"""Running requests go on by the rows of a step: as far as its budget goes, preempting others for blocks."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.rows import wanted_rows
from gpu_node.engine.steps.batch.step import Step
from gpu_node.engine.steps.giving_way import GivingWay
from gpu_node.engine.steps.guesses.draft import RowDraft
from gpu_node.engine.steps.residence import Residences


class RowAdvance:
    """Puts what requests want into a step."""

    def __init__(self, roster: Roster, draft: RowDraft, giving_way: GivingWay, residences: Residences) -> None:
        self._roster = roster
        self._draft = draft
        self._giving_way = giving_way
        self._residences = residences

    def all(self, requests: Iterable[EngineRequest], step: Step, now: float) -> bool:
        """Schedule what these want, as far as the budget goes; False where a request had to give way."""
        num_preemptions = self._giving_way.counts.num_preemptions
        for request in list(requests):
            if step.num_left_tokens == 0:
                break
            if request.request_id in self._roster.running:  # else it was preempted for one before it
                self._one(request, step, now)
        return self._giving_way.counts.num_preemptions == num_preemptions

    def _one(self, request: EngineRequest, step: Step, now: float) -> None:
        """As much of a running request as the budget takes, preempting others or itself for the blocks."""
        wanted = wanted_rows(request, step.num_left_tokens)
        num_spare = step.num_left_tokens - sum(end - one.num_computed_tokens for one, end in wanted)
        for sequence, end in wanted:
            while not self._draft.has_room(sequence, end):
                if not self._roster.is_remote(request):
                    if self._giving_way.make_room(now) is request:
                        return
                elif not self._residences.make_room(step, now):
                    return
            guesses = step.draft_tokens.get(sequence.sequence_id, ())[:num_spare]
            if guesses and not self._draft.has_room(sequence, end + len(guesses)):
                guesses = ()  # no request gives way for what may be in vain
            num_spare -= len(guesses)
            self._draft.add(request, sequence, end, step, guesses)
