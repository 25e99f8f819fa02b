"""Which tokens are computed next: continuous batching with chunked prefill, admission and preemption.

A step has a budget of tokens. Running decodes take theirs first, so that no client waits for another's prompt; running
prefills take chunks of what is left; then requests are admitted, first come first served, until places, budget or
predicted memory end. Steps so have nearly the same size (Sarathi-Serve, OSDI'24; NanoFlow, OSDI'25, §4.2.1).

Steps may be planned while others are in flight: a token that is not known yet is scheduled as `DRAWN`, and an end that
is seen a step late drops what was computed behind it. What hangs on an unknown token (beams) is not scheduled.

A pure state machine: no clock, no tensors, no I/O. Plans are committed in the order in which they were made; `add` and
`abort` come any time.
"""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.measures.counts import Counts, KeptCounts, TierCounts, looked_up
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.choices import end_chunks, refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.ends import finish_reason
from gpu_node.engine.requests.image import RequestState
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.admission import KvAdmission
from gpu_node.engine.steps.limits import refusal
from gpu_node.engine.steps.outcome import StepOutcome
from gpu_node.engine.steps.preemption import KvFate, PreemptionPolicy, preemption_policy
from gpu_node.engine.steps.resumption import HeldState, held_state, resumed
from gpu_node.engine.steps.roster import MAX_STEPS_IN_FLIGHT, Roster
from gpu_node.engine.steps.rows import draw_of, num_tops, scheduled_rows, wanted_rows
from gpu_node.engine.steps.step import Step, StepPart
from shared.config.engine import EngineOptions
from shared.messages.payload import Payload


class Scheduler:
    """The requests of one loaded model, waiting or running, and the blocks that they hold."""

    def __init__(
        self,
        model: LoadedModel,
        options: EngineOptions,
        policy: PreemptionPolicy | None = None,
        blocks: BlockManager | None = None,
    ) -> None:
        """``blocks`` are those of the model; by default it has all memory for itself."""
        self.blocks = blocks or BlockManager.alone(
            model.num_blocks,
            model.block_size,
            model.name,
            model.num_host_blocks,
            caches_in_host=options.tiers.host_bytes > 0,
        )
        self.counts = Counts()
        self._model = model
        self._options = options
        self._policy = policy or preemption_policy(options)
        self._roster = Roster(self.blocks)
        self._admission = KvAdmission(model, self.blocks, options.max_num_seqs)
        self._outcome = StepOutcome(model, self._roster, self._admission)
        self._num_added = 0

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there are requests."""
        return bool(self._roster.requests)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._roster.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for admission, the preempted ones included."""
        return len(self._roster.waiting)

    @property
    def parked(self) -> list[str]:
        """Requests that wait to go on from an image."""
        return [request.request_id for request in self._roster.waiting if request.parked is not None]

    @property
    def num_preemptions(self) -> int:
        """How often a request gave way because memory ran out."""
        return self.counts.num_preemptions

    @property
    def num_admittable(self) -> int:
        """How many more requests can be expected to run at once; the agent pulls no more than this."""
        return self._admission.num_admittable(self._roster.running.values(), self._roster.waiting)

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        request = self._roster.requests.get(request_id)
        return None if request is None else request.payload.attempt

    def leading_tokens(self, request_id: str) -> list[int]:
        """Tokens of the sequence that computes first of a request that is here, those of its output so far included."""
        return self._roster.requests[request_id].sequences[0].token_ids

    def add(self, payload: Payload, state: RequestState | None = None) -> list[OutputChunk]:
        """Queue a request. What ends at once is told: a request that can never run, choices that were complete.

        With the ``state`` of its image, in this format, it goes on from there. The image is to be kept until a plan
        restores it (`StepPlan.restores`) or the request is gone.
        """
        assert payload.request_id not in self._roster.requests
        error = refusal(payload, self._model, self._options)
        if error:
            return [refusal_chunk(payload, error)]
        order, ids, max_model_len = self._num_added, self._roster.sequence_ids, self._model.max_model_len
        self._num_added += 1
        if state is not None:
            request = resumed(state, payload, order, ids, max_model_len)
            request.num_top = num_tops(payload.sampling, self._model)
            self._roster.add(request)
            return []
        request = EngineRequest.of(payload, order, ids, max_model_len)
        request.num_top = num_tops(payload.sampling, self._model)
        reasons = [finish_reason(sequence, payload.sampling, self._model) for sequence in request.sequences]
        chunks = end_chunks(payload, request.sequences, reasons)
        request.sequences = [one for one, reason in zip(request.sequences, reasons, strict=True) if not reason]
        if request.sequences:
            self._roster.add(request)
            self._admission.on_arrival(request)
        return chunks

    def held_state(self, request_id: str) -> HeldState | None:
        """What an image of a request has to keep, to be followed by `abort`. None where nothing is computed of it.

        No step may be in flight, and the request waits for no image.
        """
        assert not self._roster.steps
        request = self._roster.requests[request_id]
        assert request.parked is None
        return held_state(request, self.blocks, self._model)

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not here. Results that are still due are dropped."""
        request = self._roster.requests.get(request_id)
        if request is None:
            return False
        self._roster.remove(request)
        self.blocks.arrivals.forget(request_id)
        return True

    def reset(self) -> int:
        """Forget all requests; returns how many there were. Cached prefixes stay."""
        requests = list(self._roster.requests.values())
        for request in requests:
            self._roster.remove(request)
        return len(requests)

    # --- one step -----------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        """Plan the next step at time ``now`` in seconds.

        Empty when nothing can be planned: there is no request, or what follows hangs on steps in flight. Any other plan
        is in flight until it is committed; `MAX_STEPS_IN_FLIGHT` may be.
        """
        roster = self._roster
        assert len(roster.steps) < MAX_STEPS_IN_FLIGHT, "the oldest step is to be committed first"
        step = Step(self._options.step_tokens)
        roster.steps.append(step)
        num_preemptions = self.num_preemptions
        # In the order of admission the decodes come first by themselves: a prefill that is not finished has used up
        # the budget, so nothing was admitted behind it.
        for request in list(roster.running.values()):
            if step.num_left_tokens == 0:
                break
            if request.request_id in roster.running:  # else it was preempted for one before it
                self._advance(request, step, now)
        if self.num_preemptions == num_preemptions:  # else memory has just run out
            self._swap_in()
            if not step.swaps_in:  # what comes back is not to be read in the same step
                self._admit(step, now)
        self._count_swaps(step)
        step.swaps_out += self.blocks.copies_out()
        plan = step.seal()
        if plan.is_empty:
            roster.steps.pop()
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[OutputChunk]:
        """Take in what the oldest step in flight computed; returns new tokens and ends.

        Requests and sequences that left meanwhile are skipped.
        """
        step = self._roster.steps[0]
        assert step.plan is plan, "steps are committed in their order"
        chunks: list[OutputChunk] = []
        for part in step.parts():
            sequence = part.sequence
            if step.part(sequence.sequence_id) is None:
                continue  # a part before it has ended its request
            if part.scheduled is not None:
                self.blocks.publish(sequence.sequence_id, sequence.token_ids, part.end)
            if part.draws:
                chunks += self._outcome.take(part.request, sequence, result)
        self.blocks.end(plan)
        self._roster.steps.popleft()
        return chunks

    def check(self) -> None:
        """Assert that the books balance. O(requests + blocks)."""
        self._roster.check()
        assert self._roster.num_taken_places <= self._options.max_num_seqs

    def _advance(self, request: EngineRequest, step: Step, now: float) -> None:
        """Schedule as much of a running request as the budget takes, preempting others or itself for the blocks."""
        for sequence, end in wanted_rows(request, step.num_left_tokens):
            while not self._has_room(sequence, end):
                victim = self._policy.victim(self._roster.running.values(), now)
                self._preempt(victim)
                if victim is request:
                    return
            self._schedule(request, sequence, end, step)

    def _has_room(self, sequence: Sequence, end: int) -> bool:
        num_new_blocks = self.blocks.num_new_blocks(sequence.sequence_id, sequence.num_computed_tokens, end)
        return num_new_blocks == 0 or num_new_blocks <= self.blocks.num_free_blocks

    def _preempt(self, victim: EngineRequest) -> None:
        fate = self._policy.fate(victim, self.blocks)
        if fate is KvFate.SWAP and self._roster.can_swap_out(victim):
            self.counts += Counts(num_preemptions=1)
            self._roster.swap_out(victim)
            return
        self.counts += Counts(
            num_preemptions=1,
            num_recomputed=int(victim.has_computed),
            swapped=TierCounts(num_refused=int(fate is KvFate.NO_ROOM)),
        )
        self._roster.put_back(victim)

    def _count_swaps(self, step: Step) -> None:
        """Of preempted requests; copies of full blocks are counted apart."""
        num_in = len(step.swaps_in) - step.num_brought_in
        if step.swaps_out or num_in:
            block_bytes = self._model.block_bytes
            moved = TierCounts(out_bytes=len(step.swaps_out) * block_bytes, in_bytes=num_in * block_bytes)
            self.counts += Counts(swapped=moved)

    def _schedule(self, request: EngineRequest, sequence: Sequence, end: int, step: Step) -> None:
        """Put the rows up to ``end`` into the step. Where the leader has computed what all share, the others fork."""
        copies = self.blocks.append(sequence.sequence_id, sequence.num_computed_tokens, end)
        forks = not request.is_forked and end == request.num_shared_tokens
        group = request.sequences if forks else [sequence]
        drawing = [one for one in group if end == len(one.token_ids) + one.num_drawn_tokens]
        draws = tuple(draw_of(request, one) for one in drawing)
        table = self.blocks.table(sequence.sequence_id)
        rows = scheduled_rows(sequence, end, table, draws)
        sequence.num_computed_tokens = end
        if forks:
            self._roster.fork(request)
        for one in group:
            is_leader = one is sequence
            step.add(
                StepPart(request, one, end, one in drawing, rows if is_leader else None, copies if is_leader else ())
            )
        for one in drawing:
            one.num_drawn_tokens += 1

    def _admits(self, request: EngineRequest) -> bool:
        return self._admission.admits(request, self._roster.running.values())

    def _restore(self, step: Step) -> bool:
        """Let the first in line go on from its image; False where it has no room in this step: nobody gives way for it.

        Then nobody behind it may begin either.
        """
        request = self._roster.restore()
        for sequence, end in wanted_rows(request, step.num_left_tokens):
            if not self._has_room(sequence, end):
                return False
            self._schedule(request, sequence, end, step)
        return True

    def _bring_in(self, request: EngineRequest, step: Step) -> bool:
        """Let what host memory has of a new request's prefix come back with this step; False if it has nothing."""
        leader = request.sequences[0]
        brought = self.blocks.bring_in(leader.sequence_id, leader.token_ids[: request.num_shared_tokens])
        if not brought.swaps:
            return False
        step.swaps_in += brought.swaps
        step.num_brought_in += len(brought.swaps)
        leader.num_computed_tokens += brought.num_tokens
        self.counts += looked_up(
            request.num_shared_tokens, leader.num_computed_tokens, is_prompt=not leader.num_output_tokens
        )
        num_store_tokens = brought.num_store_tokens
        num_host_tokens = len(brought.swaps) * self._model.block_size - num_store_tokens
        found = KeptCounts(host_tokens=num_host_tokens, store_tokens=num_store_tokens)
        self.counts += Counts(kept=found)
        return True

    def _reads_what_comes(self, leader: Sequence, step: Step) -> bool:
        """Whether a sequence has found blocks whose content comes with this step."""
        if not step.num_brought_in:
            return False
        coming = {swap.device_block for swap in step.swaps_in}
        return not coming.isdisjoint(self.blocks.table(leader.sequence_id))

    def _swap_in(self) -> None:
        """Bring back swapped-out requests; they are first in line, being preempted ones."""
        roster = self._roster
        while roster.waiting and roster.is_swapped_out(roster.waiting[0]):
            request = roster.waiting[0]
            if roster.num_swap_in_blocks(request) > self.blocks.num_free_blocks or not self._admits(request):
                return
            self.counts += Counts(swapped=TierCounts(num_restored=1))
            roster.swap_in()

    def _admit(self, step: Step, now: float) -> None:
        """Start waiting requests in their order; one that does not fit holds up those behind it, so none starves.

        Nor does one that waits for its prefix: not for long.
        """
        roster = self._roster
        while roster.waiting and step.num_left_tokens > 0:
            request = roster.waiting[0]
            if roster.is_swapped_out(request) or not self._admits(request):
                return
            if self.blocks.arrivals.is_awaited(request.request_id, now):
                return
            if request.parked is not None:
                if request.parked.num_blocks > self.blocks.num_free_blocks:
                    return
                self.counts += Counts(restored_tokens=request.parked.kv_tokens, evicted=TierCounts(num_restored=1))
                if not self._restore(step):
                    return
                continue
            roster.admit()
            if self._bring_in(request, step):
                continue  # it is computed from the next step on
            ((leader, end),) = wanted_rows(request, step.num_left_tokens)
            if self._reads_what_comes(leader, step) or not self._has_room(leader, end):
                roster.put_back(request)  # nobody who runs gives way to it
                return
            self.counts += looked_up(
                request.num_shared_tokens, leader.num_computed_tokens, is_prompt=not leader.num_output_tokens
            )
            self._schedule(request, leader, end, step)
