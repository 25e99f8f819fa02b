"""Who begins, or comes back, while memory is to spare: first come, first served, or by priority (Algorithm 2)."""

from __future__ import annotations

from collections.abc import Collection

from gpu_node.engine.measures.counts import Counts, TierCounts, looked_up
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.decisions import Decisions
from gpu_node.engine.steps.draft import Draft
from gpu_node.engine.steps.order import by_priority
from gpu_node.engine.steps.roster import Roster
from gpu_node.engine.steps.rows import wanted_rows
from gpu_node.engine.steps.step import Step
from shared.config.engine import EngineOptions


class Intake:
    """Takes requests out of the line of those that wait."""

    def __init__(self, options: EngineOptions, roster: Roster, draft: Draft, decisions: Decisions) -> None:
        self._options = options
        self._roster = roster
        self._blocks = roster.blocks
        self._draft = draft
        self._decisions = decisions
        self.counts = Counts()

    def line_up(self, now: float) -> int:
        """Put those in front who shall come next; how many of the line may. They all come from where the first does.

        In one line that is everybody. Else the largest sets that fit are built of those in host memory and of all
        others, each by priority, and the one of higher mean priority is next (AdaptiveLLM, Algorithm 2).
        """
        roster = self._roster
        if self._decisions.order.is_line or not roster.waiting:
            return len(roster.waiting)
        if self._num_left_places() <= 0 or not self._blocks.num_free_blocks:
            return 0
        swapped = [request for request in roster.waiting if roster.is_swapped_out(request)]
        others = [request for request in roster.waiting if not roster.is_swapped_out(request)]
        sets = [found for found in (self._largest(swapped, now), self._largest(others, now)) if found]
        if not sets:
            return 0
        chosen = max(sets, key=lambda found: self._mean_priority(found, now))
        roster.bring_forward(chosen)
        return len(chosen)

    def is_swapped_out_next(self) -> bool:
        """Whether the first in line is in host memory."""
        return bool(self._roster.waiting) and self._roster.is_swapped_out(self._roster.waiting[0])

    def swap_in(self, num_requests: int) -> None:
        """Bring back up to so many of the first in line, who are swapped out."""
        roster = self._roster
        for _ in range(num_requests):
            if not self.is_swapped_out_next():
                return
            request = roster.waiting[0]
            if roster.num_swap_in_blocks(request) > self._blocks.num_free_blocks or not self._admits(request):
                return
            self.counts += Counts(swapped=TierCounts(num_restored=1))
            roster.swap_in()

    def admit(self, step: Step, num_requests: int) -> None:
        """Start up to so many in their order; one that does not fit holds up those behind it, so none starves."""
        roster = self._roster
        for _ in range(num_requests):
            if not roster.waiting or step.num_left_tokens <= 0:
                return
            request = roster.waiting[0]
            if roster.is_swapped_out(request) or not self._admits(request):
                return
            if request.parked is not None:
                if request.parked.num_blocks > self._blocks.num_free_blocks:
                    return
                self.counts += Counts(restored_tokens=request.parked.kv_tokens, evicted=TierCounts(num_restored=1))
                if not self._restore(step):
                    return
                continue
            roster.admit()
            ((leader, end),) = wanted_rows(request, step.num_left_tokens)
            if not self._draft.has_room(leader, end):
                roster.put_back(request)  # nobody who runs gives way to it
                return
            self.counts += looked_up(
                request.num_shared_tokens, leader.num_computed_tokens, is_prompt=not leader.num_output_tokens
            )
            self._draft.add(request, leader, end, step)

    def _num_left_places(self) -> int:
        return self._options.max_num_seqs - self._roster.num_taken_places

    def _admits(self, request: EngineRequest) -> bool:
        return self._decisions.admission.admits(request, self._roster.running.values())

    def _restore(self, step: Step) -> bool:
        """Let the first in line go on from its image; False where it has no room in this step: nobody gives way for it.

        Then nobody behind it may begin either.
        """
        request = self._roster.restore()
        for sequence, end in wanted_rows(request, step.num_left_tokens):
            if not self._draft.has_room(sequence, end):
                return False
            self._draft.add(request, sequence, end, step)
        return True

    def _largest(self, requests: Collection[EngineRequest], now: float) -> list[EngineRequest]:
        """The longest beginning of these, by priority, for which places and blocks are free now."""
        num_places, num_blocks = self._num_left_places(), self._blocks.num_free_blocks
        found: list[EngineRequest] = []
        for request in sorted(requests, key=lambda one: by_priority(self._decisions.order, one, now), reverse=True):
            num_places -= request.num_places
            num_blocks -= self._num_blocks(request)
            if num_places < 0 or num_blocks < 0:
                break
            found.append(request)
        return found

    def _num_blocks(self, request: EngineRequest) -> int:
        """Free blocks that it takes when it comes; of a prompt, as if nothing were cached."""
        if self._roster.is_swapped_out(request):
            return self._roster.num_swap_in_blocks(request)
        if request.parked is not None:
            return request.parked.num_blocks
        return -(-len(request.sequences[0].token_ids) // self._blocks.block_size)

    def _mean_priority(self, requests: Collection[EngineRequest], now: float) -> float:
        return sum(self._decisions.order.priority(request, now) for request in requests) / len(requests)
