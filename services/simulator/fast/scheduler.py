"""Decisions of `gpu_node.engine.steps.scheduler` for plain requests, at the cost of what changes in a step."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.requests.choices import refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.steps.admission.held_kv import HeldKv
from gpu_node.engine.steps.admission.preemption import KvFate, newest, preemption_policy
from gpu_node.engine.steps.batch.limits import refusal
from gpu_node.engine.steps.batch.order import FirstComeFirstServed
from gpu_node.executors.predicted.executor import AnswerTokens
from services.simulator.fast.admission import FastAdmission
from services.simulator.fast.beginnings import Beginnings
from services.simulator.fast.parking import Parked
from services.simulator.fast.plain import check_request
from services.simulator.fast.roster import FastRoster
from services.simulator.fast.sequence import FastSequence
from services.simulator.fast.step_done import StepDone
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload


class FastScheduler:
    """Decides for the requests of one loaded model, which are in its ``roster``."""

    def __init__(self, model: LoadedModel, options: EngineOptions, answer_tokens: AnswerTokens, costs: KvCosts) -> None:
        """``costs`` are what preemptions are decided by, where they ask for costs."""
        self.model = model
        self.roster = FastRoster(model, options.swap_copies)
        self.counts = Counts()
        self._options = options
        self._policy = preemption_policy(options, costs, FirstComeFirstServed())
        self._answer_tokens = answer_tokens
        self._admission = FastAdmission(model, self.roster, options.max_num_seqs)
        self._beginnings = Beginnings(model.block_size, self.roster)
        self._num_added = 0

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def num_preemptions(self) -> int:
        """How often a request gave way because memory ran out."""
        return self.counts.num_preemptions

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
        if roster.prefilling or not len(batch):
            return 0
        num_steps = batch.num_steps_to_end
        if roster.waiting and self._may_fit(roster.waiting[0]):
            num_steps = min(num_steps, self._admission.num_blocked_steps(roster.waiting[0]))
        return min(num_steps, batch.num_steps_within(roster.blocks.num_free_before(roster.swapped.waiting)))

    def _may_fit(self, first: FastSequence) -> bool:
        """A sequence that is swapped out and finds no room does not as long as none ends."""
        return self.roster.swapped.num_held(first.payload.request_id) <= self.roster.blocks.num_free

    def pass_steps(self, num_steps: int) -> list[OutputChunk]:
        """Let so many of these steps pass; returns the ends."""
        roster, batch = self.roster, self.roster.batch
        roster.take(batch.num_new_blocks(num_steps))
        return [self._finish(sequence) for sequence in batch.advance(num_steps)]

    # --- one step -----------------------------------------------------------------------------------------------------

    def step(self) -> StepDone:
        """Decode, prefill, bring back, admit: in this order, as far as budget, places and blocks go."""
        roster, batch, done = self.roster, self.roster.batch, StepDone(self._options.step_tokens)
        num_preemptions = self.num_preemptions
        if roster.is_in_order:
            self._decode(done)
            for sequence in list(roster.prefilling.values()):
                if done.num_left_tokens > 0:
                    self._advance(sequence, done)
        else:
            self._advance_all(done)
        if self.num_preemptions == num_preemptions:
            self._take_in(done)
        resting = [] if done.all_decode else [one for one in batch if not done.has_decoded(one.payload.request_id)]
        for sequence in resting:
            roster.rest(sequence)
        done.num_blocks_out += roster.swapped.due()
        done.count(len(batch), batch.num_context_tokens)
        self._conclude(done)
        for sequence in resting:
            roster.wake(sequence)
        return done

    def _conclude(self, done: StepDone) -> None:
        """What was drafted is computed: tokens are told, in the order of admission, and who ends leaves."""
        roster = self.roster
        ends = {one.rank: one for one in roster.batch.advance(1)}
        rows = {one.sequence.rank: one for one in done.prefills.values()}
        for rank in sorted((*ends, *rows)):
            if rank in ends:
                done.chunks.append(self._finish(ends[rank]))
            else:
                done.chunks += self._prefilled(rows[rank].sequence, rows[rank].end)
        for sequence in done.waking:
            request_id = sequence.payload.request_id
            if request_id in roster.running and request_id not in done.prefills:
                roster.wake(sequence)
        if done.num_moved_blocks:
            out_bytes, in_bytes = (num * self.model.block_bytes for num in (done.num_blocks_out, done.num_blocks_in))
            self.counts += Counts(swapped=TierCounts(out_bytes, in_bytes))

    def _decode(self, done: StepDone) -> None:
        """Give all decoding sequences the blocks that they need; where these run out, the newest requests give way."""
        roster, batch = self.roster, self.roster.batch
        num_new_blocks = batch.num_new_blocks(1)
        if num_new_blocks <= roster.blocks.num_free:
            roster.take(num_new_blocks)
        else:
            for request_id, sequence in list(roster.running.items()):
                if sequence not in batch:
                    continue
                if batch.begins_block(sequence):
                    if not self._make_room(sequence, 1, done):
                        continue
                    roster.take(1)
                done.decode(request_id)
        done.all_decode = True
        done.num_left_tokens = self._options.step_tokens - len(batch)

    def _advance_all(self, done: StepDone) -> None:
        """The same where one that does not decode yet runs ahead of others: each in the order of admission."""
        for request_id, sequence in list(self.roster.running.items()):
            if done.num_left_tokens == 0:
                return
            if request_id in self.roster.running:  # else it gave way to one before it
                self._advance(sequence, done)

    def _advance(self, sequence: FastSequence, done: StepDone) -> None:
        """Draft what one wants, as far as the budget goes; nothing where it has to give way itself."""
        roster = self.roster
        start = roster.num_computed(sequence)
        end = min(roster.num_known(sequence), start + done.num_left_tokens)
        num_new_blocks = roster.num_held(sequence, end) - roster.num_held(sequence)
        if not self._make_room(sequence, num_new_blocks, done):
            return
        roster.take(num_new_blocks)
        if sequence in roster.batch:
            done.decode(sequence.payload.request_id)
        else:
            done.prefill(sequence, start, end)

    def _make_room(self, sequence: FastSequence, num_blocks: int, done: StepDone) -> bool:
        """Free blocks for one that runs, at the cost of those that came last; False if that is itself."""
        roster = self.roster
        while roster.blocks.num_free < num_blocks:
            victim = newest(roster.running.values())
            self._preempt(victim, done)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: FastSequence, done: StepDone) -> None:
        """As `gpu_node.engine.steps.scheduler`: what is drafted of a victim counts as held, and is not computed."""
        roster, request_id = self.roster, victim.payload.request_id
        end = roster.num_computed(victim)
        if request_id in done.prefills:
            end = done.prefills[request_id].end
        elif victim in roster.batch and done.has_decoded(request_id):
            end += 1
        done.discard(request_id)
        num_blocks = roster.num_held(victim, end)
        num_copied_blocks = roster.swapped.num_copied(request_id, roster.num_computed(victim) // self.model.block_size)
        held = HeldKv(end, num_blocks, roster.swapped.num_free, num_copied_blocks=num_copied_blocks)
        fate = self._policy.fate_of(held)
        self.counts += Counts(
            num_preemptions=1,
            num_recomputed=int(end > 0 and fate is not KvFate.SWAP),
            swapped=TierCounts(num_refused=int(fate is KvFate.NO_ROOM)),
        )
        if fate is KvFate.SWAP:
            roster.swap_out(victim, num_blocks)
        else:
            roster.put_back(victim, num_blocks)
            victim.num_dropped_tokens = end

    def _take_in(self, done: StepDone) -> None:
        """Bring back those that are first in line and swapped out; where nothing moves for them, admit others."""
        roster, num_preemptions = self.roster, self.num_preemptions
        while roster.waiting and roster.waiting[0].payload.request_id in roster.swapped:
            first = roster.waiting[0]
            if not self._may_fit(first) or self._admission.num_blocked_steps(first):
                break
            num_blocks = roster.swapped.num_held(first.payload.request_id)
            sequence, num_moved = roster.swap_in()
            self._policy.note_return(num_blocks, num_blocks - num_moved)
            self.counts += Counts(swapped=TierCounts(num_restored=1))
            done.waking.append(sequence)
            done.num_blocks_in += num_moved
        if done.num_blocks_in:
            return  # what comes back is not to be read in the same step
        if done.waking and not len(roster.batch) and not done.prefills:
            self._advance_all(done)  # all of it was on the device still, and no other runs
            if self.num_preemptions > num_preemptions:
                return
        self._admit(done)

    def _admit(self, done: StepDone) -> None:
        """Start waiting requests in their order; one that does not fit holds up those behind it."""
        roster = self.roster
        while roster.waiting and done.num_left_tokens > 0:
            first = roster.waiting[0]
            if first.payload.request_id in roster.swapped or self._admission.num_blocked_steps(first):
                return
            if not self._begin(first, done):
                return

    def _begin(self, sequence: FastSequence, done: StepDone) -> bool:
        """Let the first in line run; whether it has room for any row."""
        roster = self.roster
        request_id, parked = sequence.payload.request_id, sequence.parked
        if parked is not None and (parked.num_blocks > roster.blocks.num_free or roster.swapped.copy_all()):
            return False
        num_usable = sequence.offset - 1 if parked is None else parked.num_computed_tokens
        num_held = roster.blocks.take_back(request_id, num_usable // self.model.block_size)
        start = num_held * self.model.block_size
        if parked is not None:
            roster.take(parked.num_blocks - num_held)
            done.restored.append(request_id)
            done.num_restored_bytes += (parked.num_blocks - num_held) * self.model.block_bytes
            sequence.parked = None
            num_held, start = parked.num_blocks, parked.num_computed_tokens
        end = min(sequence.offset, start + done.num_left_tokens)
        num_new_blocks = roster.num_blocks_for(end) - num_held
        has_room = num_new_blocks <= roster.blocks.num_free
        if not has_room and parked is None:
            roster.blocks.release(request_id, num_held, 0)
            return False
        roster.admit()
        sequence.num_computed_tokens = start
        if has_room:
            roster.take(num_new_blocks)
            done.prefill(sequence, start, end)
            self._note_return(sequence, start)
        else:
            done.waking.append(sequence)
        return has_room

    def _note_return(self, sequence: FastSequence, start: int) -> None:
        """One that was dropped is computed again, behind what is cached still of what it had."""
        size = self.model.block_size
        num_blocks, sequence.num_dropped_tokens = sequence.num_dropped_tokens // size, 0
        self._policy.note_return(num_blocks, min(start // size, num_blocks))

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
