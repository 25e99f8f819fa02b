"""Which tokens are computed next: continuous batching with chunked prefill, admission and preemption by recompute.

A step has a budget of tokens. Running decodes take theirs first, so that no client waits for another's prompt; running
prefills take chunks of what is left; then requests are admitted, first come first served, until places, budget or
predicted memory end. Steps so have nearly the same size (Sarathi-Serve, OSDI'24; NanoFlow, OSDI'25, §4.2.1).

A pure state machine: no clock, no tensors, no I/O. `schedule` and `commit` alternate; `add` and `abort` come any time.
"""

from __future__ import annotations

from collections import deque

from gpu_node.engine.admission import Admission
from gpu_node.engine.block_manager import BlockManager
from gpu_node.engine.draft import StepDraft
from gpu_node.engine.limits import finish_reason, refusal
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import Draw, ScheduledSequence, StepPlan, StepResult
from gpu_node.engine.preemption import PreemptionPolicy, preemption_policy
from gpu_node.engine.sequence import Request, Sequence
from shared.config import EngineOptions
from shared.messages import Chunk, Payload


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
            model.num_blocks, model.block_size, model.name, model.num_host_blocks
        )
        self.num_preemptions = 0
        self._model = model
        self._max_num_seqs = options.max_num_seqs
        self._step_tokens = options.step_tokens
        self._policy = policy or preemption_policy(options)
        self._admission = Admission(model, self.blocks, options.max_num_seqs)
        self._num_added = 0
        self._requests: dict[str, Request] = {}
        self._waiting: deque[Request] = deque()
        self._running: dict[str, Request] = {}  # in the order of admission
        self._scheduled: dict[int, tuple[Request, Sequence]] = {}  # of the plan that is not committed yet

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return bool(self._requests)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for admission, the preempted ones included."""
        return len(self._waiting)

    @property
    def num_admittable(self) -> int:
        """How many more requests can be expected to run at once; the agent pulls no more than this."""
        return self._admission.num_admittable(self._running.values(), self._waiting)

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        request = self._requests.get(request_id)
        return None if request is None else request.payload.attempt

    def add(self, payload: Payload) -> Chunk | None:
        """Queue a request. A chunk that ends it comes back at once if it can never run, or was complete already."""
        assert payload.request_id not in self._requests
        error = refusal(payload, self._model)
        if error:
            return _chunk(payload, 0, [], "error", error)
        request = Request.of(payload, self._num_added)
        self._num_added += 1
        reason = finish_reason(request.sequences[0], payload.sampling, self._model)
        if reason:
            return _chunk(payload, request.sequences[0].num_output_tokens, [], reason)
        self._requests[payload.request_id] = request
        self._waiting.append(request)
        self._admission.on_arrival(request)
        return None

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not here. A result that is still due is dropped."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return False
        if self._running.pop(request_id, None) is None:
            self._waiting.remove(request)
        else:
            self._free(request)
        for sequence in request.sequences:
            self._scheduled.pop(sequence.sequence_id, None)
        return True

    def reset(self) -> int:
        """Forget all requests; returns how many there were. Cached prefixes stay."""
        request_ids = list(self._requests)
        for request_id in request_ids:
            self.abort(request_id)
        return len(request_ids)

    # --- one step -----------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        """Plan the next step at time ``now`` in seconds; empty only when there is no request."""
        assert not self._scheduled, "the step before is not committed"
        draft = StepDraft(self._step_tokens)
        # In the order of admission the decodes come first by themselves: a prefill that is not finished has used up
        # the budget, so nothing was admitted behind it.
        for request in list(self._running.values()):
            if request.request_id in self._running:  # else it was preempted for one before it
                self._advance(request, draft, now)
        self._admit(draft, now)
        return draft.plan()

    def commit(self, plan: StepPlan, result: StepResult) -> list[Chunk]:
        """Take in what the step computed; returns new tokens and ends. Requests that left meanwhile are skipped."""
        chunks = []
        for part in plan.sequences:
            if part.sequence_id not in self._scheduled:
                continue
            request, sequence = self._scheduled.pop(part.sequence_id)
            sequence.num_computed_tokens += len(part.token_ids)
            self.blocks.publish(sequence.sequence_id, sequence.token_ids, sequence.num_computed_tokens)
            if part.draws:
                chunks.append(self._take_token(request, sequence, result))
        assert not self._scheduled, "the plan is not the one that was scheduled"
        return chunks

    def check(self) -> None:
        """Assert that the books balance. O(requests + blocks)."""
        self.blocks.check()
        waiting = {request.request_id: request for request in self._waiting}
        assert len(waiting) == len(self._waiting), "waits once"
        assert not waiting.keys() & self._running.keys(), "waiting or running"
        assert {**waiting, **self._running} == self._requests, "all are waiting or running"
        assert len(self._running) <= self._max_num_seqs
        for request in self._requests.values():
            for sequence in request.sequences:
                assert sequence.num_missing_tokens >= 1, "a token is wanted"
                if request.request_id in self._running:
                    num_slots = len(self.blocks.table(sequence.sequence_id)) * self._model.block_size
                    assert num_slots >= sequence.num_computed_tokens, "computed tokens lie in blocks"
                else:
                    assert sequence.num_computed_tokens == 0, "who waits holds nothing"
        if not self._scheduled:
            assert all(request.is_decoding for request in list(self._running.values())[:-1]), "prefill comes last"
        if not self._running:
            assert self.blocks.num_used_blocks == 0, "no block is lost"

    def _advance(self, request: Request, draft: StepDraft, now: float) -> None:
        """Schedule as much of a running request as the budget takes, preempting others or itself for the blocks."""
        for sequence in request.sequences:
            start = sequence.num_computed_tokens
            end = start + min(sequence.num_missing_tokens, draft.num_left_tokens)
            if start == end:
                return
            while self.blocks.num_new_blocks(sequence.sequence_id, start, end) > self.blocks.num_free_blocks:
                victim = self._policy.victim(self._running.values(), now)
                self._preempt(victim, draft)
                if victim is request:
                    return
            copies = self.blocks.append(sequence.sequence_id, start, end)
            is_last = end == len(sequence.token_ids)
            part = ScheduledSequence(
                sequence_id=sequence.sequence_id,
                token_ids=tuple(sequence.token_ids[start:end]),
                start=start,
                block_table=tuple(self.blocks.table(sequence.sequence_id)),
                draws=(Draw(sequence.sequence_id, request.sampling, sequence.num_output_tokens),) if is_last else (),
            )
            draft.add(part, copies)
            self._scheduled[sequence.sequence_id] = (request, sequence)

    def _admit(self, draft: StepDraft, now: float) -> None:
        """Start waiting requests in their order; one that does not fit holds up those behind it, so none starves.

        Who was preempted in this step is first in line and does not come back in it: with it, the demand is above what
        there is. So nobody is admitted in a step that preempts.
        """
        while self._waiting and draft.num_left_tokens > 0 and len(self._running) < self._max_num_seqs:
            request = self._waiting[0]
            if self._running and not self._admission.admits(request, self._running.values()):
                return
            self._waiting.popleft()
            self._running[request.request_id] = request
            for sequence in request.sequences:
                sequence.num_computed_tokens = self.blocks.open(sequence.sequence_id, sequence.token_ids)
            self._advance(request, draft, now)

    def _preempt(self, victim: Request, draft: StepDraft) -> None:
        """Drop what a request has computed and put it first in line. Its blocks stay cached until they are taken."""
        self._free(victim)
        for sequence in victim.sequences:
            draft.discard(sequence.sequence_id)
            self._scheduled.pop(sequence.sequence_id, None)
            sequence.num_computed_tokens = 0
        del self._running[victim.request_id]
        self._waiting.appendleft(victim)
        self.num_preemptions += 1

    def _take_token(self, request: Request, sequence: Sequence, result: StepResult) -> Chunk:
        index = sequence.num_output_tokens
        error = result.errors.get(sequence.sequence_id, "")
        if error:
            self.abort(request.request_id)
            return _chunk(request.payload, index, [], "error", error)
        token = result.token_ids[sequence.sequence_id]
        sequence.token_ids.append(token)
        reason = finish_reason(sequence, request.sampling, self._model)
        if reason:
            self._admission.on_finish(sequence)
            self.abort(request.request_id)
        return _chunk(request.payload, index, [token], reason)

    def _free(self, request: Request) -> None:
        for sequence in request.sequences:
            self.blocks.free(sequence.sequence_id)


def _chunk(payload: Payload, index: int, token_ids: list[int], finish_reason: str, error: str = "") -> Chunk:
    ends = bool(finish_reason)
    return Chunk(payload.request_id, payload.attempt, index, token_ids, finish_reason, error, is_last=ends)
