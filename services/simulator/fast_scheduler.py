"""Decisions of `gpu_node.engine.scheduler` for plain requests, at the cost of what changes in a step."""

from __future__ import annotations

from collections import deque
from itertools import islice

from gpu_node.engine.choices import refusal_chunk
from gpu_node.engine.chunk import Chunk
from gpu_node.engine.limits import refusal
from gpu_node.engine.model import LoadedModel
from gpu_node.executors.predicted import AnswerTokens
from services.simulator.block_counts import BlockCounts
from services.simulator.decode_batch import DecodeBatch
from services.simulator.fast_admission import Demand, FastAdmission
from services.simulator.fast_parking import Parked
from services.simulator.fast_sequence import FastSequence
from services.simulator.step_done import StepDone
from shared.config_engine import EngineOptions
from shared.payload import Output, Payload


class FastScheduler:
    """The requests of one loaded model."""

    def __init__(self, model: LoadedModel, options: EngineOptions, answer_tokens: AnswerTokens) -> None:
        self.model = model
        self.blocks = BlockCounts(model.num_blocks)
        self.batch = DecodeBatch(model.block_size)
        self.num_preemptions = 0
        self._options = options
        self._answer_tokens = answer_tokens
        self._admission = FastAdmission(model, options.max_num_seqs)
        self._requests: dict[str, FastSequence] = {}
        self._waiting: deque[FastSequence] = deque()
        self._running: dict[str, FastSequence] = {}  # in the order of admission
        self._prefilling: FastSequence | None = None  # the last of the running ones, if it does not decode yet
        self._num_added = 0
        self._num_admitted = 0

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there are requests."""
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
        """How many more requests can be expected to run at once."""
        if len(self._requests) >= self._options.max_num_seqs:
            return 0
        return self._admission.num_admittable(self._running_demands(), [self._demand(one) for one in self._waiting])

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        sequence = self._requests.get(request_id)
        return None if sequence is None else sequence.payload.attempt

    def add(self, payload: Payload, parked: Parked | None) -> list[Chunk]:
        """Queue a request; with what was kept of it, it goes on from there."""
        error = refusal(payload, self.model, self._options)
        if error:
            return [refusal_chunk(payload, error)]
        num_prompt_tokens = len(payload.prompt_token_ids)
        output = payload.outputs[0] if payload.outputs else Output()
        max_len = min(num_prompt_tokens + payload.sampling.max_tokens, self.model.max_model_len)
        num_told_tokens = len(output.token_ids) if parked is None else parked.num_known_tokens - num_prompt_tokens
        sequence = FastSequence(
            payload=payload,
            order=self._num_added,
            num_prompt_tokens=num_prompt_tokens,
            max_len=max_len,
            answer_len=num_prompt_tokens + self._answer_tokens(payload.sampling),
            num_told_tokens=num_told_tokens,
            offset=num_prompt_tokens + num_told_tokens,
            parked=parked,
        )
        self._num_added += 1
        if parked is None:
            if output.finish_reason or sequence.offset >= sequence.end_len:
                return [self._end_chunk(sequence)]
            self._admission.on_arrival(num_prompt_tokens, max_len)
        self._requests[payload.request_id] = sequence
        self._waiting.append(sequence)
        return []

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks; nothing happens if it is not here."""
        sequence = self._requests.pop(request_id, None)
        if sequence is None:
            return
        if request_id in self._running:
            self._stop(sequence)
        else:
            self._waiting.remove(sequence)

    def reset(self) -> None:
        """Forget all requests."""
        for request_id in list(self._requests):
            self.abort(request_id)

    def held(self, request_id: str) -> Parked:
        """What there is to keep of a request."""
        sequence = self._requests[request_id]
        num_computed = self._num_computed(sequence)
        return Parked(
            request_id=request_id,
            attempt=sequence.payload.attempt,
            model=self.model.name,
            num_known_tokens=self._num_known(sequence),
            num_computed_tokens=num_computed,
            num_blocks=self._num_blocks_for(num_computed),
            block_bytes=self.model.block_bytes,
        )

    def tell(self, request_id: str) -> list[Chunk]:
        """The tokens of a request that its client has not been sent."""
        sequence = self._requests[request_id]
        num_known = self._num_known(sequence)
        return [sequence.tell(num_known, "")] if sequence.num_untold_tokens(num_known) else []

    def tell_all(self) -> list[Chunk]:
        """Likewise, of all requests."""
        return [chunk for request_id in self._running for chunk in self.tell(request_id)]

    def num_untold_tokens(self) -> dict[str, int]:
        """How many tokens of each request its client has not been sent."""
        return {
            request_id: sequence.num_untold_tokens(self._num_known(sequence))
            for request_id, sequence in self._requests.items()
        }

    def redraw(self, num_steps: int) -> None:
        """Answers are as long as `AnswerTokens` says now; the tokens of so many quiet steps are drawn already."""
        for sequence in self._requests.values():
            num_drawn = self._num_known(sequence) + (num_steps if sequence in self.batch else 0)
            if num_drawn < sequence.end_len:
                answer_len = sequence.num_prompt_tokens + self._answer_tokens(sequence.payload.sampling)
                sequence.answer_len = max(num_drawn + 1, answer_len)
        self.batch.ends_moved()

    # --- spans of steps in which nothing is decided -------------------------------------------------------------------

    def num_quiet_steps(self) -> int:
        """Steps from now on in which all running sequences decode and nothing else happens, but ends in the last."""
        if self._prefilling is not None or not len(self.batch):
            return 0
        num_steps = self.batch.num_steps_to_end
        if self._waiting and len(self._running) < self._options.max_num_seqs:
            candidate = self._demand(self._waiting[0])
            num_steps = min(num_steps, self._admission.num_blocked_steps(candidate, self._running_demands()))
        return min(num_steps, self.batch.num_steps_within(self.blocks.num_free))

    def pass_steps(self, num_steps: int) -> list[Chunk]:
        """Let so many of these steps pass; returns the ends."""
        self.blocks.take(self.batch.num_new_blocks(num_steps))
        return [self._finish(sequence) for sequence in self.batch.advance(num_steps)]

    # --- one step -----------------------------------------------------------------------------------------------------

    def step(self) -> StepDone:
        """Decode, prefill, admit: in this order, as far as budget, places and blocks go."""
        done = StepDone()
        num_preemptions = self.num_preemptions
        self._decode()
        num_left = self._options.step_tokens - len(self.batch)
        if self._prefilling is not None and num_left > 0:
            num_left = self._prefill(self._prefilling, num_left, done)
        if self.num_preemptions == num_preemptions:
            self._admit(num_left, done)
        done.num_tokens += len(self.batch)
        done.num_context_tokens += self.batch.num_context_tokens
        done.num_attended_tokens += self.batch.num_context_tokens
        done.chunks += [self._finish(sequence) for sequence in self.batch.advance(1)]
        for sequence, end in done.prefills:
            done.chunks += self._prefilled(sequence, end)
        for sequence in done.resting:
            self.batch.join(sequence)
        return done

    def _decode(self) -> None:
        """Give all decoding sequences the blocks that they need; where these run out, the newest requests give way."""
        num_new_blocks = self.batch.num_new_blocks(1)
        if num_new_blocks <= self.blocks.num_free:
            self.blocks.take(num_new_blocks)
            return
        drafted: set[str] = set()
        for request_id, sequence in list(self._running.items()):
            if sequence not in self.batch:
                continue
            if self.batch.begins_block(sequence):
                if not self._make_room(sequence, 1, drafted):
                    continue
                self.blocks.take(1)
            drafted.add(request_id)

    def _prefill(self, sequence: FastSequence, num_left: int, done: StepDone) -> int:
        """Go on with a prefill that has begun; returns what is left of the budget."""
        start = sequence.num_computed_tokens
        end = min(sequence.offset, start + num_left)
        num_new_blocks = self._num_blocks_for(end) - self._num_blocks_for(start)
        if not self._make_room(sequence, num_new_blocks, {one.payload.request_id for one in self.batch}):
            return num_left
        self.blocks.take(num_new_blocks)
        self._prefilling = None
        done.prefill(sequence, start, end)
        return num_left - (end - start)

    def _make_room(self, sequence: FastSequence, num_blocks: int, drafted: set[str]) -> bool:
        """Free blocks for one that runs, at the cost of whoever came last; False if that is itself."""
        while self.blocks.num_free < num_blocks:
            victim = max(self._running.values(), key=lambda running: running.order)
            self.num_preemptions += 1
            self._stop(victim, is_drafted=victim.payload.request_id in drafted)
            self._waiting.appendleft(victim)
            if victim is sequence:
                return False
        return True

    def _admit(self, num_left: int, done: StepDone) -> None:
        """Start waiting requests in their order; one that does not fit holds up those behind it."""
        while self._waiting and num_left > 0:
            sequence = self._waiting[0]
            if len(self._running) >= self._options.max_num_seqs:
                return
            if self._admission.num_blocked_steps(self._demand(sequence), self._running_demands()):
                return
            num_used = self._begin(sequence, num_left, done)
            if num_used == 0:
                return
            num_left -= num_used

    def _begin(self, sequence: FastSequence, num_left: int, done: StepDone) -> int:
        """Let the first in line run; the tokens that it takes from the budget, 0 where it has no room for any."""
        request_id = sequence.payload.request_id
        parked = sequence.parked
        if parked is not None and parked.num_blocks > self.blocks.num_free:
            return 0
        num_usable = sequence.offset - 1 if parked is None else parked.num_computed_tokens
        num_held = self.blocks.take_back(request_id, num_usable // self.model.block_size)
        start = num_held * self.model.block_size
        if parked is not None:
            self.blocks.take(parked.num_blocks - num_held)
            done.restored.append(request_id)
            done.num_restored_bytes += (parked.num_blocks - num_held) * self.model.block_bytes
            sequence.parked = None
            num_held, start = parked.num_blocks, parked.num_computed_tokens
        end = min(sequence.offset, start + num_left)
        num_new_blocks = self._num_blocks_for(end) - num_held
        has_room = num_new_blocks <= self.blocks.num_free
        if not has_room and parked is None:
            self.blocks.release(request_id, num_held, 0)
            return 0
        self._waiting.popleft()
        self._running[request_id] = sequence
        sequence.rank, self._num_admitted = self._num_admitted, self._num_admitted + 1
        if has_room:
            self.blocks.take(num_new_blocks)
            done.prefill(sequence, start, end)
            return end - start
        sequence.num_computed_tokens = start
        if start == sequence.offset - 1:
            done.resting.append(sequence)
        else:
            self._prefilling = sequence
        return 0

    def _prefilled(self, sequence: FastSequence, end: int) -> list[Chunk]:
        """Rows up to ``end`` are computed; with the last of them, a token is drawn."""
        sequence.num_computed_tokens = end
        if end < sequence.offset:
            self._prefilling = sequence
            return []
        sequence.offset += 1
        self.batch.join(sequence)
        if self.batch.num_tokens(sequence) >= sequence.end_len:
            return [self._finish(sequence)]
        return self.tell(sequence.payload.request_id)

    # --- how it ends --------------------------------------------------------------------------------------------------

    def _finish(self, sequence: FastSequence) -> Chunk:
        """All its tokens are drawn; the last is never computed."""
        del self._requests[sequence.payload.request_id]
        self._stop(sequence)
        self._admission.on_finish(sequence.offset - sequence.num_prompt_tokens)
        return self._end_chunk(sequence)

    def _end_chunk(self, sequence: FastSequence) -> Chunk:
        return sequence.tell(self._num_known(sequence), sequence.end_reason)

    def _stop(self, sequence: FastSequence, *, is_drafted: bool = False) -> None:
        """It runs no more and holds nothing. ``is_drafted``: it has the block for a token that is not computed yet."""
        request_id = sequence.payload.request_id
        num_computed = self._num_computed(sequence)
        del self._running[request_id]
        if sequence in self.batch:
            self.batch.leave(sequence)
        elif sequence is self._prefilling:
            self._prefilling = None
        num_full = num_computed // self.model.block_size
        num_held = self._num_blocks_for(num_computed + is_drafted)
        self.blocks.release(request_id, num_full, num_held - num_full)
        sequence.num_computed_tokens = 0

    # --- what it is now -----------------------------------------------------------------------------------------------

    def _num_known(self, sequence: FastSequence) -> int:
        return self.batch.num_tokens(sequence) if sequence in self.batch else sequence.offset

    def _num_computed(self, sequence: FastSequence) -> int:
        if sequence in self.batch:
            return self.batch.num_tokens(sequence) - 1
        return sequence.num_computed_tokens

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.model.block_size)

    def _demand(self, sequence: FastSequence) -> Demand:
        return self._admission.demand(self._num_known(sequence), sequence.num_prompt_tokens, sequence.max_len)

    def _running_demands(self) -> list[Demand]:
        """Those that do not decode yet were admitted last."""
        num_others = len(self._running) - len(self.batch)
        others = [self._demand(sequence) for sequence in islice(reversed(self._running.values()), num_others)]
        return [*self._admission.demands(self.batch, self.batch.clock), *others]

    def check(self) -> None:
        """Assert that the books balance. O(requests)."""
        self.blocks.check()
        waiting = {sequence.payload.request_id: sequence for sequence in self._waiting}
        assert {**waiting, **self._running} == self._requests
        assert len(waiting) + len(self._running) == len(self._requests)
        assert all(one in self.batch or one is self._prefilling for one in self._running.values())
        num_held = sum(self._num_blocks_for(self._num_computed(one)) for one in self._running.values())
        assert num_held + self.blocks.num_free == self.blocks.num_blocks
