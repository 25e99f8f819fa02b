"""Decisions of `gpu_node.engine.steps.scheduler` for plain requests, at the cost of what changes in a step."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.choices import refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.steps.limits import refusal
from gpu_node.engine.steps.preemption import newest
from gpu_node.executors.predicted.executor import AnswerTokens
from services.simulator.fast.admission import FastAdmission
from services.simulator.fast.beginnings import Beginnings
from services.simulator.fast.parking import Parked
from services.simulator.fast.plain import check_request
from services.simulator.fast.roster import FastRoster
from services.simulator.fast.sequence import FastSequence
from services.simulator.fast.step_done import StepDone
from shared.config.engine import EngineOptions
from shared.messages.payload import Payload


class FastScheduler:
    """Decides for the requests of one loaded model, which are in its ``roster``."""

    def __init__(self, model: LoadedModel, options: EngineOptions, answer_tokens: AnswerTokens) -> None:
        self.model = model
        self.roster = FastRoster(model)
        self.num_preemptions = 0
        self._options = options
        self._answer_tokens = answer_tokens
        self._admission = FastAdmission(model, self.roster, options.max_num_seqs)
        self._beginnings = Beginnings(model.block_size, self.roster)
        self._num_added = 0

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def num_admittable(self) -> int:
        """How many more requests can be expected to run at once."""
        return self._admission.num_admittable

    def add(self, payload: Payload, parked: Parked | None) -> list[OutputChunk]:
        """Queue a request; with what was kept of it, it goes on from there.

        Raises `FastEngineError` for one that is not plain.
        """
        error = refusal(payload, self.model, self._options)
        if error:
            return [refusal_chunk(payload, error)]
        check_request(payload)
        self._beginnings.check(payload)
        num_answer_tokens = self._answer_tokens(payload.sampling)
        sequence = FastSequence.of(payload, self._num_added, self.model.max_model_len, num_answer_tokens, parked)
        self._num_added += 1
        if parked is None:
            has_ended = bool(payload.outputs and payload.outputs[0].finish_reason)
            if has_ended or sequence.offset >= sequence.end_len:
                return [self._end_chunk(sequence)]
            self._admission.typical.on_arrival(sequence.num_prompt_tokens, sequence.max_len)
        self.roster.add(sequence)
        return []

    def redraw(self, num_steps: int) -> None:
        """Answers are as long as `AnswerTokens` says now; the tokens of so many quiet steps are drawn already."""
        roster, batch = self.roster, self.roster.batch
        for sequence in roster.requests.values():
            num_drawn = roster.num_known(sequence) + (num_steps if sequence in batch else 0)
            if num_drawn < sequence.end_len:
                answer_len = sequence.num_prompt_tokens + self._answer_tokens(sequence.payload.sampling)
                sequence.answer_len = max(num_drawn + 1, answer_len)
        batch.ends_moved()

    # --- spans of steps in which nothing is decided -------------------------------------------------------------------

    def num_quiet_steps(self) -> int:
        """Steps from now on in which all running sequences decode and nothing else happens, but ends in the last."""
        roster, batch = self.roster, self.roster.batch
        if roster.prefilling is not None or not len(batch):
            return 0
        num_steps = batch.num_steps_to_end
        if roster.waiting:
            num_steps = min(num_steps, self._admission.num_blocked_steps(roster.waiting[0]))
        return min(num_steps, batch.num_steps_within(roster.blocks.num_free))

    def pass_steps(self, num_steps: int) -> list[OutputChunk]:
        """Let so many of these steps pass; returns the ends."""
        roster, batch = self.roster, self.roster.batch
        roster.blocks.take(batch.num_new_blocks(num_steps))
        return [self._finish(sequence) for sequence in batch.advance(num_steps)]

    # --- one step -----------------------------------------------------------------------------------------------------

    def step(self) -> StepDone:
        """Decode, prefill, admit: in this order, as far as budget, places and blocks go."""
        roster, batch, done = self.roster, self.roster.batch, StepDone()
        num_preemptions = self.num_preemptions
        self._decode()
        num_left = self._options.step_tokens - len(batch)
        if roster.prefilling is not None and num_left > 0:
            num_left = self._prefill(roster.prefilling, num_left, done)
        if self.num_preemptions == num_preemptions:
            self._admit(num_left, done)
        done.num_tokens += len(batch)
        done.num_context_tokens += batch.num_context_tokens
        done.num_attended_tokens += batch.num_context_tokens
        done.chunks += [self._finish(sequence) for sequence in batch.advance(1)]
        for sequence, end in done.prefills:
            done.chunks += self._prefilled(sequence, end)
        for sequence in done.resting:
            batch.join(sequence)
        return done

    def _decode(self) -> None:
        """Give all decoding sequences the blocks that they need; where these run out, the newest requests give way."""
        roster, batch = self.roster, self.roster.batch
        num_new_blocks = batch.num_new_blocks(1)
        if num_new_blocks <= roster.blocks.num_free:
            roster.blocks.take(num_new_blocks)
            return
        drafted: set[str] = set()
        for request_id, sequence in list(roster.running.items()):
            if sequence not in batch:
                continue
            if batch.begins_block(sequence):
                if not self._make_room(sequence, 1, drafted):
                    continue
                roster.blocks.take(1)
            drafted.add(request_id)

    def _prefill(self, sequence: FastSequence, num_left: int, done: StepDone) -> int:
        """Go on with a prefill that has begun; returns what is left of the budget."""
        roster = self.roster
        start = sequence.num_computed_tokens
        end = min(sequence.offset, start + num_left)
        num_new_blocks = roster.num_blocks_for(end) - roster.num_blocks_for(start)
        if not self._make_room(sequence, num_new_blocks, {one.payload.request_id for one in roster.batch}):
            return num_left
        roster.blocks.take(num_new_blocks)
        done.prefill(sequence, start, end)
        return num_left - (end - start)

    def _make_room(self, sequence: FastSequence, num_blocks: int, drafted: set[str]) -> bool:
        """Free blocks for one that runs, at the cost of those that came last; False if that is itself."""
        roster = self.roster
        while roster.blocks.num_free < num_blocks:
            victim = newest(roster.running.values())
            self.num_preemptions += 1
            roster.put_back(victim, is_drafted=victim.payload.request_id in drafted)
            if victim is sequence:
                return False
        return True

    def _admit(self, num_left: int, done: StepDone) -> None:
        """Start waiting requests in their order; one that does not fit holds up those behind it."""
        roster = self.roster
        while roster.waiting and num_left > 0:
            sequence = roster.waiting[0]
            if self._admission.num_blocked_steps(sequence):
                return
            num_used = self._begin(sequence, num_left, done)
            if num_used == 0:
                return
            num_left -= num_used

    def _begin(self, sequence: FastSequence, num_left: int, done: StepDone) -> int:
        """Let the first in line run; the tokens that it takes from the budget, 0 where it has no room for any."""
        roster = self.roster
        request_id, parked = sequence.payload.request_id, sequence.parked
        if parked is not None and parked.num_blocks > roster.blocks.num_free:
            return 0
        num_usable = sequence.offset - 1 if parked is None else parked.num_computed_tokens
        num_held = roster.blocks.take_back(request_id, num_usable // self.model.block_size)
        start = num_held * self.model.block_size
        if parked is not None:
            roster.blocks.take(parked.num_blocks - num_held)
            done.restored.append(request_id)
            done.num_restored_bytes += (parked.num_blocks - num_held) * self.model.block_bytes
            sequence.parked = None
            num_held, start = parked.num_blocks, parked.num_computed_tokens
        end = min(sequence.offset, start + num_left)
        num_new_blocks = roster.num_blocks_for(end) - num_held
        has_room = num_new_blocks <= roster.blocks.num_free
        if not has_room and parked is None:
            roster.blocks.release(request_id, num_held, 0)
            return 0
        roster.admit()
        if has_room:
            roster.blocks.take(num_new_blocks)
            done.prefill(sequence, start, end)
            return end - start
        if start == sequence.offset - 1:
            sequence.num_computed_tokens = start
            done.resting.append(sequence)
        else:
            roster.compute(sequence, start)
        return 0

    def _prefilled(self, sequence: FastSequence, end: int) -> list[OutputChunk]:
        """Rows up to ``end`` are computed; the first token is told at once, unless it is the last too."""
        roster = self.roster
        roster.compute(sequence, end)
        if sequence not in roster.batch:
            return []
        if roster.batch.num_tokens(sequence) >= sequence.end_len:
            return [self._finish(sequence)]
        return roster.tell(sequence.payload.request_id)

    # --- how it ends --------------------------------------------------------------------------------------------------

    def _finish(self, sequence: FastSequence) -> OutputChunk:
        """All its tokens are drawn; the last is never computed."""
        self.roster.end(sequence)
        self._admission.typical.on_finish(sequence.offset - sequence.num_prompt_tokens)
        return self._end_chunk(sequence)

    def _end_chunk(self, sequence: FastSequence) -> OutputChunk:
        return sequence.tell(self.roster.num_known(sequence), sequence.end_reason)
