"""Where every request is, and what it holds: waiting, running, blocks, parts of steps in flight.

A sequence may end, or lose its blocks, while steps that compute it are in flight. Its parts are taken out of them, so
what they bring is dropped. What they still write does no harm: a block that is freed now is only handed to steps that
are planned later, and devices run steps in order; and no such write goes to a block that is offered for reuse, since
only the positions of tokens that are known and committed are published, and these are never computed again in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as AnySequence
from dataclasses import replace
from itertools import count

from gpu_node.engine.border.plan import Restore
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest, Sequence, num_common_tokens
from gpu_node.engine.steps.batch.step import Step

MAX_STEPS_IN_FLIGHT = 2
"""One that runs and one behind it. More would only let ends be seen later."""


class Roster:
    """The requests of one loaded model. Changes are all or nothing for a request; only ends are a sequence's own."""

    def __init__(self, blocks: BlockManager) -> None:
        self.blocks = blocks
        self.requests: dict[str, EngineRequest] = {}
        self.waiting: deque[EngineRequest] = deque()
        self.running: dict[str, EngineRequest] = {}  # in the order of admission
        self.swapped: dict[str, EngineRequest] = {}  # of those that wait
        self.steps: deque[Step] = deque()  # in flight, oldest first; the last may be a draft
        self.sequence_ids = count()

    @property
    def num_taken_places(self) -> int:
        """Sequences that run, or may come to."""
        return sum(request.num_places for request in self.running.values())

    def add(self, request: EngineRequest) -> None:
        """Put a new request at the end of the line."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def bring_forward(self, requests: AnySequence[EngineRequest]) -> None:
        """Put some of those that wait in front, in this order."""
        for request in requests:
            self.waiting.remove(request)
        self.waiting.extendleft(reversed(requests))

    def admit(self) -> EngineRequest:
        """Let the first in line run. Its leader begins with what is cached of the tokens that all sequences share."""
        request = self.waiting.popleft()
        self.running[request.request_id] = request
        leader = request.sequences[0]
        request.num_shared_tokens = num_common_tokens(request.sequences)
        shared = leader.token_ids[: request.num_shared_tokens]
        leader.num_computed_tokens = self.blocks.open(leader.sequence_id, shared, request.payload.owner)
        return request

    def fork(self, request: EngineRequest) -> None:
        """Let the other sequences share the leader's blocks, which hold (or will, in this step) what is common to all.

        None of them computes anything before the next step: the copies of a step are made before its rows.
        """
        leader, *others = request.sequences
        assert leader.num_computed_tokens == request.num_shared_tokens
        for sequence in others:
            self.blocks.fork(leader.sequence_id, sequence.sequence_id)
            sequence.num_computed_tokens = request.num_shared_tokens
        request.is_forked = True

    def put_back(self, request: EngineRequest) -> None:
        """Drop what a request has computed and put it first in line. Its blocks stay cached until they are taken."""
        del self.running[request.request_id]
        if self.steps:
            self.steps[-1].cancel_call_back(request, self.blocks.table(request.sequences[0].sequence_id))
        self._release(request)
        request.is_forked = request.goes_over = False
        for sequence in request.sequences:
            sequence.go_back(0)
        self.waiting.appendleft(request)

    def lose(self, request: EngineRequest) -> bool:
        """What a request has computed is lost, wherever it was moved since; False where it has nothing any more."""
        if self.running.get(request.request_id) is request:
            self.put_back(request)
            return True
        if self.swapped.get(request.request_id) is not request:
            return False  # it has left; another attempt of it may be here
        del self.swapped[request.request_id]
        self._release(request)
        request.is_forked = False
        for sequence in request.sequences:
            sequence.go_back(0)
        return True

    def can_swap_out(self, request: EngineRequest) -> bool:
        """Whether the step that is drafted moves no content of the request yet: swaps out are made before all else."""
        if request in self.steps[-1].called_back:
            return False
        parts = [self.steps[-1].part(one.sequence_id) for one in request.holders]
        return all(part is None or (part.scheduled is not None and not part.copies) for part in parts)

    def swap_out(self, request: EngineRequest) -> None:
        """Move what a request has computed to host memory and put it first in line.

        It comes back to the tokens that steps in flight compute, since its swap is queued behind them, but not to those
        that they draw: these are drawn again. What the draft would compute of it is computed when it is back. A beam
        keeps the continuations that it waits with: its last block may be full and published, so its last token is not
        computed again.
        """
        draft = self.steps[-1]
        for sequence in request.holders:
            if sequence.continuations:
                continue
            if sequence.num_draft_tokens:
                self.blocks.trim(sequence.sequence_id, sequence.num_computed_tokens)
            part = draft.part(sequence.sequence_id)
            drafted = part.scheduled if part is not None else None
            sequence.go_back(sequence.num_computed_tokens if drafted is None else drafted.start)
            self._discard_parts(sequence)
        del self.running[request.request_id]
        request.goes_over = False
        self.swapped[request.request_id] = request
        draft.swaps_out += self.blocks.swap_out([one.sequence_id for one in request.holders])
        self.waiting.appendleft(request)

    def is_swapped_out(self, request: EngineRequest) -> bool:
        """Whether a waiting request has its blocks in host memory."""
        return request.request_id in self.swapped

    def is_remote(self, request: EngineRequest) -> bool:
        """Whether its blocks are the receiver's; then it has one sequence."""
        return self.blocks.remote.has(request.sequences[0].sequence_id)

    def num_swap_in_blocks(self, request: EngineRequest) -> int:
        """Free blocks that `swap_in` takes."""
        return self.blocks.num_swap_in_blocks([one.sequence_id for one in request.holders])

    def swap_in(self) -> int:
        """Let the first in line, which is swapped out, run again; its moves are the draft's, and so many."""
        request = self.waiting.popleft()
        self.running[request.request_id] = request
        del self.swapped[request.request_id]
        moves = self.blocks.swap_in([one.sequence_id for one in request.holders])
        self.steps[-1].swaps_in += moves
        return len(moves)

    def restore(self) -> EngineRequest:
        """Let the first in line, which was evicted, go on with the draft; its blocks are written before that runs."""
        request = self.waiting.popleft()
        state, request.parked = request.parked, None
        assert state is not None
        moves: dict[int, int] = {}
        unwritten: list[int] = []
        for sequence, one in zip(request.sequences, state.sequences, strict=True):
            if one.places:
                unwritten += self.blocks.restore(
                    sequence.sequence_id,
                    one.places,
                    sequence.token_ids,
                    sequence.num_computed_tokens,
                    moves,
                    request.payload.owner,
                )
        blocks = tuple(moves[place] for place in unwritten)
        self.steps[-1].restores.append(Restore(request.request_id, tuple(unwritten), blocks))
        self.running[request.request_id] = request
        return request

    def remove(self, request: EngineRequest) -> None:
        """Forget a request, wherever it is."""
        del self.requests[request.request_id]
        if self.running.pop(request.request_id, None) is not None:
            self._release(request)
            return
        self.waiting.remove(request)
        if self.swapped.pop(request.request_id, None) is not None:
            self._release(request)

    def end(self, request: EngineRequest, sequence: Sequence) -> None:
        """A sequence of a forked request is at its end: its blocks are free; the request goes on without it, if it can.

        With its last sequence the request is forgotten.
        """
        assert request.is_forked
        self.drop(sequence)
        request.sequences.remove(sequence)
        if not request.sequences:
            self.remove(request)

    def fork_beam(self, parent: Sequence) -> Sequence:
        """A second sequence with the tokens, blocks and continuations of one that no step in flight computes."""
        assert not any(step.part(parent.sequence_id) for step in list(self.steps)[1:])
        beam = replace(
            parent,
            sequence_id=next(self.sequence_ids),
            token_ids=list(parent.token_ids),
            logprobs=list(parent.logprobs),
        )
        self.blocks.fork(parent.sequence_id, beam.sequence_id)
        return beam

    def drop(self, sequence: Sequence) -> None:
        """Free the blocks of a sequence, and let nothing come of the steps in flight."""
        self.blocks.free(sequence.sequence_id)
        self._discard_parts(sequence)

    def check(self) -> None:
        """Assert that the books balance. O(requests + blocks)."""
        self.blocks.check()
        waiting = {request.request_id: request for request in self.waiting}
        assert len(waiting) == len(self.waiting), "waits once"
        assert not waiting.keys() & self.running.keys(), "waiting or running"
        assert {**waiting, **self.running} == self.requests, "all are waiting or running"
        away = {one for one in waiting.values() if self.blocks.is_swapped_out(one.sequences[0].sequence_id)}
        assert away == set(self.swapped.values()), "a request in host memory waits"
        assert len(self.steps) <= MAX_STEPS_IN_FLIGHT
        assert all(step.plan is not None for step in list(self.steps)[:-1]), "only the last is a draft"
        for request in self.requests.values():
            self._check_request(request)
        holders = [one for request in self.running.values() if not self.is_remote(request) for one in request.holders]
        held = {block for one in holders for block in self.blocks.table(one.sequence_id)}
        assert self.blocks.num_used_blocks == len(held), "no block is lost"
        parts = [part for step in self.steps for part in step.parts()]
        assert all(part.request.request_id in self.running for part in parts), "a request that left is in no step"
        assert all(any(part.sequence is one for one in part.request.sequences) for part in parts), "nor one that ended"

    def _check_request(self, request: EngineRequest) -> None:
        assert request.sequences, "a request without sequences is over"
        is_running = request.request_id in self.running
        holders = request.holders if is_running or self.is_swapped_out(request) else []
        for sequence in request.sequences:
            parts = [step.part(sequence.sequence_id) for step in self.steps]
            num_draws = sum(part is not None and part.draws for part in parts) + bool(sequence.continuations)
            assert sequence.num_drawn_tokens == num_draws, "drawn by a step in flight, or not chosen yet"
            num_drafts = sum(len(part.draft_token_ids) for part in parts if part is not None)
            assert sequence.num_draft_tokens == num_drafts, "guesses are in one step in flight, or none"
            assert not num_drafts or sequence.num_missing_tokens == 0, "and are waited for"
            assert len(sequence.token_ids) < sequence.max_len, "a token is wanted"
            assert sequence.num_missing_tokens >= 0
            if request.parked is not None:
                assert not is_running, "blocks are on the device or in an image"
            elif not any(sequence is one for one in holders):
                assert sequence.num_computed_tokens == sequence.num_drawn_tokens == 0, "no blocks, nothing computed"
            elif is_running:
                num_slots = len(self.blocks.table(sequence.sequence_id)) * self.blocks.block_size
                assert num_slots >= sequence.num_computed_tokens, "computed tokens lie in blocks"

    def _release(self, request: EngineRequest) -> None:
        for sequence in request.holders:
            self.blocks.free(sequence.sequence_id)
        for sequence in request.sequences:
            self._discard_parts(sequence)

    def _discard_parts(self, sequence: Sequence) -> None:
        for step in self.steps:
            step.discard(sequence.sequence_id)
