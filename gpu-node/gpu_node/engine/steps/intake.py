"""Which requests begin, or come back, while memory is to spare: in order of arrival, or by priority (Algorithm 2)."""

from __future__ import annotations

from gpu_node.engine.measures.counts import Counts, KeptCounts, TierCounts, looked_up
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.admission.decisions import Decisions
from gpu_node.engine.steps.admission.set_choice import FreeRoom
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.rows import wanted_rows
from gpu_node.engine.steps.batch.step import Step
from gpu_node.engine.steps.common_beginnings import comes_soon
from gpu_node.engine.steps.guesses.draft import RowDraft
from gpu_node.engine.steps.residence import Residences
from shared.config.engines.engine import EngineOptions

MAX_BLOCKED_STEPS = 16
"""For so many steps at most a refused request is not asked about again: prefixes that are computed meanwhile may let it
in earlier than its rule of admission knows."""


class WaitingLine:
    """Takes requests out of the line of those that wait."""

    def __init__(
        self,
        options: EngineOptions,
        roster: Roster,
        draft: RowDraft,
        decisions: Decisions,
        residences: Residences,
        *,
        takes_whole_texts: bool = False,
    ) -> None:
        """With ``takes_whole_texts``, no request begins in a step that has no room for all of its tokens, nor waits for
        a beginning that another one computes."""
        self._takes_whole_texts = takes_whole_texts
        self._options = options
        self._roster = roster
        self._blocks = roster.blocks
        self._draft = draft
        self._decisions = decisions
        self._residences = residences
        self.counts = Counts()
        self._num_steps = 0
        self._refused: EngineRequest | None = None
        self._refused_until = 0
        self._refused_state = self._state()

    def line_up(self, now: float) -> int:
        """Put those in front that shall come next; how many of the line may. They all come from where the first does.

        In one line all may. Else the largest sets that fit are built of those in host memory and of all others, each by
        priority, and the one of higher mean priority is next (AdaptiveLLM, Algorithm 2).
        """
        self._num_steps += 1
        roster = self._roster
        if self._decisions.order.is_line or not roster.waiting:
            return len(roster.waiting)
        if self._num_left_places() <= 0 or not self._blocks.num_free_blocks or self._is_blocked():
            return 0
        room = FreeRoom(self._num_left_places(), self._blocks.num_free_blocks)
        chosen = self._decisions.choice.choose(roster, room, self._num_blocks, now)
        roster.bring_forward(chosen)
        return len(chosen)

    def is_swapped_out_next(self) -> bool:
        """Whether the first in line is in host memory."""
        return bool(self._roster.waiting) and self._roster.is_swapped_out(self._roster.waiting[0])

    def swap_in(self, num_requests: int) -> int:
        """Bring back up to so many of the first in line, if swapped out; how many came."""
        roster = self._roster
        num_returned = 0
        while num_returned < num_requests and self.is_swapped_out_next():
            request = roster.waiting[0]
            num_blocks = roster.num_swap_in_blocks(request)
            if num_blocks > self._blocks.num_free_blocks or not self._admits(request):
                break
            self.counts += Counts(swapped=TierCounts(num_restored=1))
            num_moved = roster.swap_in()
            self._decisions.preemption.note_return(num_blocks, max(0, num_blocks - num_moved))
            num_returned += 1
        return num_returned

    def admit(self, step: Step, num_requests: int, now: float) -> None:
        """Start up to so many in their order; one that does not fit holds up those behind it, so none starves.

        Nor does one that waits for its prefix: not for long.
        """
        roster = self._roster
        for _ in range(num_requests):
            if not roster.waiting or step.num_left_tokens <= 0:
                return
            request = roster.waiting[0]
            if roster.is_swapped_out(request) or not self._admits(request):
                return
            if self._takes_whole_texts:
                if request.num_tokens > step.num_left_tokens:
                    return  # the next step has room for it: longer texts are refused when they come
            elif self._blocks.arrivals.is_awaited(request.request_id, now) or comes_soon(roster):
                return
            if request.parked is not None:
                if request.parked.num_blocks > self._blocks.num_free_blocks or self._blocks.copy_all_out():
                    return
                self.counts += Counts(restored_tokens=request.parked.kv_tokens, evicted=TierCounts(num_restored=1))
                if not self._restore(step):
                    return
                continue
            roster.admit()
            if self._bring_in(request, step):
                continue  # it is computed from the next step on
            ((leader, end),) = wanted_rows(request, step.num_left_tokens)
            if self._reads_what_comes(leader, step) or not self._draft.has_room(leader, end):
                roster.put_back(request)  # no running request gives way to it
                return
            self._note_found(request, leader)
            self._note_return(request, leader)
            self._draft.add(request, leader, end, step)

    def _note_found(self, request: EngineRequest, leader: Sequence) -> None:
        """One begins with what its leader has of it already; that is told of the first time only."""
        num_found = leader.num_computed_tokens
        self.counts += looked_up(request.num_shared_tokens, num_found, is_prompt=not leader.num_output_tokens)
        if request.num_cached_tokens is None:
            request.num_cached_tokens = num_found

    def _note_return(self, request: EngineRequest, leader: Sequence) -> None:
        """One that was dropped is computed again, behind what is cached still of what it had."""
        size = self._blocks.block_size
        num_dropped_blocks, request.num_dropped_tokens = request.num_dropped_tokens // size, 0
        num_cached_blocks = min(leader.num_computed_tokens // size, num_dropped_blocks)
        self._decisions.preemption.note_return(num_dropped_blocks, num_cached_blocks)

    def _bring_in(self, request: EngineRequest, step: Step) -> bool:
        """Let what host memory has of a new request's prefix come back with this step; False if it has nothing."""
        leader = request.sequences[0]
        brought = self._blocks.bring_in(leader.sequence_id, leader.token_ids[: request.num_shared_tokens])
        if not brought.swaps:
            return False
        step.swaps_in += brought.swaps
        step.num_brought_in += len(brought.swaps)
        leader.num_computed_tokens += brought.num_tokens
        self._note_found(request, leader)
        num_store_tokens = brought.num_store_tokens
        num_host_tokens = len(brought.swaps) * self._blocks.block_size - num_store_tokens
        found = KeptCounts(host_tokens=num_host_tokens, store_tokens=num_store_tokens)
        self.counts += Counts(kept=found)
        return True

    def _reads_what_comes(self, leader: Sequence, step: Step) -> bool:
        """Whether a sequence has found blocks whose content comes with this step."""
        if not step.num_brought_in:
            return False
        coming = {swap.device_block for swap in step.swaps_in}
        return not coming.isdisjoint(self._blocks.table(leader.sequence_id))

    def _num_left_places(self) -> int:
        return self._options.max_num_seqs - self._roster.num_taken_places

    def _admits(self, request: EngineRequest) -> bool:
        """Asked where the answer may be another than the last time."""
        if self._is_blocked() and request is self._refused:
            return False
        running = self._roster.running.values()
        self._residences.choose(request)
        num_steps = self._decisions.admission.num_blocked_steps(request, running)
        self._refused = request if num_steps else None
        self._refused_until = self._num_steps + min(num_steps, MAX_BLOCKED_STEPS)
        self._refused_state = self._state()
        return num_steps == 0

    def _is_blocked(self) -> bool:
        """The request that was refused last would be again: none came, left or ended since, or it was lately."""
        if self._refused is None or self._num_steps >= self._refused_until:
            return False
        return self._refused_state == self._state()

    def _state(self) -> tuple[float, ...]:
        """Changes with all that may admit a request earlier than the rule of admission says."""
        roster = self._roster
        here = len(roster.requests), len(roster.running), roster.num_taken_places, self._blocks.num_usable_blocks
        return (*here, *self._residences.state)

    def _restore(self, step: Step) -> bool:
        """Let the first in line go on from its image; False where it has no room in this step: none gives way for it.

        Then none behind it may begin either.
        """
        request = self._roster.restore()
        for sequence, end in wanted_rows(request, step.num_left_tokens):
            if not self._draft.has_room(sequence, end):
                return False
            self._draft.add(request, sequence, end, step)
        return True

    def _num_blocks(self, request: EngineRequest) -> int:
        """Free blocks that it takes when it comes; of a prompt, as if nothing were cached."""
        if self._roster.is_swapped_out(request):
            return self._roster.num_swap_in_blocks(request)
        if request.parked is not None:
            return request.parked.num_blocks
        return -(-len(request.sequences[0].token_ids) // self._blocks.block_size)
