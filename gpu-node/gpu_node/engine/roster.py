"""Where every request is, and what it holds: waiting, running, blocks, parts of steps in flight.

A sequence may end, or lose its blocks, while steps that compute it are in flight. Its parts are taken out of them, so
what they bring is dropped. What they still write does no harm: a block that is freed now is only handed to steps that
are planned later, and devices run steps in order; and no such write goes to a block that is offered for reuse, since
only the positions of tokens that are known and committed are published, and these are never computed again in place.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import count

from gpu_node.engine.block_manager import BlockManager
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.sequence import Request, Sequence, num_common_tokens
from gpu_node.engine.step import Step

MAX_STEPS_IN_FLIGHT = 2
"""One that runs and one behind it. More would only let ends be seen later."""


class Roster:
    """The requests of one loaded model. Changes are all or nothing for a request; only ends are a sequence's own."""

    def __init__(self, model: LoadedModel) -> None:
        self.blocks = BlockManager(model.num_blocks, model.block_size, model.name)
        self.requests: dict[str, Request] = {}
        self.waiting: deque[Request] = deque()
        self.running: dict[str, Request] = {}  # in the order of admission
        self.steps: deque[Step] = deque()  # in flight, oldest first; the last may be a draft
        self.sequence_ids = count()
        self.num_preemptions = 0

    @property
    def num_taken_places(self) -> int:
        """Sequences that run, or may come to."""
        return sum(request.num_places for request in self.running.values())

    def add(self, request: Request) -> None:
        """Put a new request at the end of the line."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def admit(self) -> Request:
        """Let the first in line run. Its leader begins with what is cached of the tokens that all sequences share."""
        request = self.waiting.popleft()
        self.running[request.request_id] = request
        leader = request.sequences[0]
        request.num_shared_tokens = num_common_tokens(request.sequences)
        shared = leader.token_ids[: request.num_shared_tokens]
        leader.num_computed_tokens = self.blocks.open(leader.sequence_id, shared)
        return request

    def fork(self, request: Request) -> None:
        """Let the other sequences share the leader's blocks, which hold (or will, in this step) what is common to all.

        None of them computes anything before the next step: the copies of a step are made before its rows.
        """
        leader, *others = request.sequences
        assert leader.num_computed_tokens == request.num_shared_tokens
        for sequence in others:
            self.blocks.fork(leader.sequence_id, sequence.sequence_id)
            sequence.num_computed_tokens = request.num_shared_tokens
        request.is_forked = True

    def preempt(self, victim: Request) -> None:
        """Drop what a request has computed and put it first in line. Its blocks stay cached until they are taken."""
        del self.running[victim.request_id]
        self._release(victim)
        victim.forget_computed()
        self.waiting.appendleft(victim)
        self.num_preemptions += 1

    def remove(self, request: Request) -> None:
        """Forget a request, waiting or running."""
        del self.requests[request.request_id]
        if self.running.pop(request.request_id, None) is None:
            self.waiting.remove(request)
        else:
            self._release(request)

    def end(self, request: Request, sequence: Sequence) -> None:
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
        assert not any(parent.sequence_id in step for step in list(self.steps)[1:])
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
        for step in self.steps:
            step.discard(sequence.sequence_id)

    def check(self) -> None:
        """Assert that the books balance. O(requests + blocks)."""
        self.blocks.check()
        waiting = {request.request_id: request for request in self.waiting}
        assert len(waiting) == len(self.waiting), "waits once"
        assert not waiting.keys() & self.running.keys(), "waiting or running"
        assert {**waiting, **self.running} == self.requests, "all are waiting or running"
        assert len(self.steps) <= MAX_STEPS_IN_FLIGHT
        assert not any(step.plan is None for step in list(self.steps)[:-1]), "only the last is a draft"
        for request in self.requests.values():
            self._check_request(request, is_running=request.request_id in self.running)
        holders = [one for request in self.running.values() for one in _holders(request)]
        held = {block for one in holders for block in self.blocks.table(one.sequence_id)}
        assert self.blocks.num_blocks - self.blocks.num_free_blocks == len(held), "no block is lost"
        parts = [part for step in self.steps for part in step.parts()]
        assert all(part.request.request_id in self.running for part in parts), "who left is in no step"
        assert all(any(part.sequence is one for one in part.request.sequences) for part in parts), "nor is who ended"

    def _check_request(self, request: Request, *, is_running: bool) -> None:
        assert request.sequences, "a request without sequences is over"
        assert is_running or not request.is_forked
        holders = _holders(request) if is_running else []
        for sequence in request.sequences:
            num_draws = sum(step.draws(sequence.sequence_id) for step in self.steps)
            has_continuations = bool(sequence.continuations)
            assert sequence.num_drawn_tokens == num_draws + has_continuations, "drawn in a step, or to be chosen"
            assert len(sequence.token_ids) < sequence.max_len, "a token is wanted"
            assert sequence.num_missing_tokens >= 0
            if any(sequence is one for one in holders):
                num_slots = len(self.blocks.table(sequence.sequence_id)) * self.blocks.block_size
                assert num_slots >= sequence.num_computed_tokens, "computed tokens lie in blocks"
            else:
                assert sequence.num_computed_tokens == sequence.num_drawn_tokens == 0, "who holds nothing has nothing"

    def _release(self, request: Request) -> None:
        for sequence in _holders(request):
            self.drop(sequence)


def _holders(request: Request) -> list[Sequence]:
    """Those of a running request that hold blocks."""
    return request.sequences if request.is_forked else request.sequences[:1]
