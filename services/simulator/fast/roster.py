"""Where each request of the fast engine is, and what it holds (live: `gpu_node.engine.steps.batch.roster`)."""

from __future__ import annotations

from collections import deque

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.chunk import OutputChunk
from services.simulator.fast.block_counts import BlockCounts
from services.simulator.fast.decode_batch import DecodeBatch
from services.simulator.fast.parking import Parked
from services.simulator.fast.sequence import FastSequence
from services.simulator.fast.swap_counts import SwapCounts
from shared.config.engines.engine import SwapCopies


class FastRoster:
    """The requests of one loaded model, waiting or running, and the blocks that they hold."""

    def __init__(self, model: LoadedModel, copies: SwapCopies = "at_once") -> None:
        """``copies`` of what is swapped out."""
        self._model = model
        self.blocks = BlockCounts(model.num_blocks)
        self.batch = DecodeBatch(model.block_size)
        self.requests: dict[str, FastSequence] = {}
        self.waiting: deque[FastSequence] = deque()
        self.running: dict[str, FastSequence] = {}  # in the order of admission
        self.prefilling: dict[str, FastSequence] = {}  # those of them that do not decode yet
        self.swapped = SwapCounts(model.num_host_blocks, copies)  # some of those that wait
        self._num_admitted = 0

    # --- requests come and go -----------------------------------------------------------------------------------------

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        sequence = self.requests.get(request_id)
        return None if sequence is None else sequence.payload.attempt

    def add(self, sequence: FastSequence) -> None:
        """Put a new request at the end of the line."""
        self.requests[sequence.payload.request_id] = sequence
        self.waiting.append(sequence)

    def admit(self) -> FastSequence:
        """Let the first in line run. Its blocks are for the caller that admits it to take."""
        sequence = self.waiting.popleft()
        self.running[sequence.payload.request_id] = sequence
        sequence.rank, self._num_admitted = self._num_admitted, self._num_admitted + 1
        return sequence

    def compute(self, sequence: FastSequence, end: int) -> None:
        """Rows up to ``end`` of its prefill are computed; with the last of them, a token is drawn."""
        sequence.num_computed_tokens = end
        if end < sequence.offset:
            self.prefilling[sequence.payload.request_id] = sequence
            return
        self.prefilling.pop(sequence.payload.request_id, None)
        sequence.offset += 1
        self.batch.join(sequence)

    def rest(self, sequence: FastSequence) -> None:
        """One of the batch has no row in this step."""
        self.batch.leave(sequence)
        sequence.num_computed_tokens = sequence.offset - 1

    def wake(self, sequence: FastSequence) -> None:
        """It is computed from the next step on, behind what it has."""
        if sequence.num_computed_tokens == sequence.offset - 1:
            self.batch.join(sequence)
        else:
            self.prefilling[sequence.payload.request_id] = sequence

    def put_back(self, sequence: FastSequence, num_blocks: int) -> None:
        """Drop what a request has computed and put it first in line; it holds so many blocks."""
        self._stop(sequence, num_blocks)
        self.waiting.appendleft(sequence)

    def swap_out(self, sequence: FastSequence, num_blocks: int) -> None:
        """Move what a request has computed to host memory and put it first in line.

        Of the blocks that it holds, those for rows that are not computed are given up.
        """
        num_computed = self.num_computed(sequence)
        num_full = num_computed // self._model.block_size
        self.put_back(sequence, num_blocks)
        sequence.num_computed_tokens = num_computed
        self.swapped.take(sequence.payload.request_id, num_full, self.num_blocks_for(num_computed) - num_full)

    def swap_in(self) -> tuple[FastSequence, int]:
        """Let the first in line, which is swapped out, run; it, and how many of its blocks have to be moved."""
        sequence = self.admit()
        request_id = sequence.payload.request_id
        num_full = sequence.num_computed_tokens // self._model.block_size
        num_moved = self.swapped.num_held(request_id) - self.blocks.take_back(request_id, num_full)
        self.take(num_moved)
        self.swapped.give_back(request_id, num_full)
        return sequence, num_moved

    def take(self, num_blocks: int) -> None:
        """Hold free blocks; there are enough."""
        self.swapped.leave(self.blocks.take(num_blocks))

    def end(self, sequence: FastSequence) -> None:
        """Forget one that runs: it has all its tokens."""
        del self.requests[sequence.payload.request_id]
        self._stop(sequence)

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks; nothing happens if it is not here."""
        sequence = self.requests.pop(request_id, None)
        if sequence is None:
            return
        if request_id in self.running:
            self._stop(sequence)
        else:
            self.waiting.remove(sequence)
            if request_id in self.swapped:
                self.swapped.give_back(request_id, sequence.num_computed_tokens // self._model.block_size)

    def reset(self) -> None:
        """Forget all requests."""
        for request_id in list(self.requests):
            self.abort(request_id)

    def _stop(self, sequence: FastSequence, num_blocks: int | None = None) -> None:
        """It runs no more and holds nothing. ``num_blocks`` where it holds more than it has filled, in a draft."""
        request_id = sequence.payload.request_id
        num_computed = self.num_computed(sequence)
        if num_blocks is None:
            num_blocks = self.num_held(sequence)
        del self.running[request_id]
        if sequence in self.batch:
            self.batch.leave(sequence)
        self.prefilling.pop(request_id, None)
        num_full = num_computed // self._model.block_size
        self.blocks.release(request_id, num_full, num_blocks - num_full)
        sequence.num_computed_tokens = 0

    # --- what it is now -----------------------------------------------------------------------------------------------

    def num_known(self, sequence: FastSequence) -> int:
        """Tokens of one of them, prompt and output together."""
        return self.batch.num_tokens(sequence) if sequence in self.batch else sequence.offset

    def num_computed(self, sequence: FastSequence) -> int:
        """Those of them that are computed."""
        if sequence in self.batch:
            return self.batch.num_tokens(sequence) - 1
        return sequence.num_computed_tokens

    @property
    def is_in_order(self) -> bool:
        """Whether all who run decode, but the last."""
        return not self.prefilling or [*self.prefilling] == [next(reversed(self.running))]

    def num_held(self, sequence: FastSequence, end: int = 0) -> int:
        """Blocks of one that runs, with those for rows that are drafted up to ``end``."""
        return self.num_blocks_for(max(end, self.num_computed(sequence)))

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that so many tokens of a sequence take."""
        return -(-num_tokens // self._model.block_size)

    def held(self, request_id: str) -> Parked:
        """What there is to keep of a request."""
        sequence = self.requests[request_id]
        num_computed = self.num_computed(sequence)
        return Parked(
            request_id=request_id,
            attempt=sequence.payload.attempt,
            model=self._model.name,
            num_known_tokens=self.num_known(sequence),
            num_computed_tokens=num_computed,
            num_blocks=self.num_blocks_for(num_computed),
            block_bytes=self._model.block_bytes,
        )

    # --- what clients have not been sent ------------------------------------------------------------------------------

    def tell(self, request_id: str) -> list[OutputChunk]:
        """The tokens of a request that its client has not been sent."""
        sequence = self.requests[request_id]
        num_known = self.num_known(sequence)
        return [sequence.tell(num_known, "")] if sequence.num_untold_tokens(num_known) else []

    def tell_all(self) -> list[OutputChunk]:
        """Likewise, of all requests."""
        return [chunk for request_id in self.running for chunk in self.tell(request_id)]

    def num_untold_tokens(self) -> dict[str, int]:
        """How many tokens of each request its client has not been sent."""
        return {
            request_id: sequence.num_untold_tokens(self.num_known(sequence))
            for request_id, sequence in self.requests.items()
        }

    def check(self) -> None:
        """Assert that the books balance. O(requests)."""
        self.blocks.check()
        waiting = {sequence.payload.request_id: sequence for sequence in self.waiting}
        assert {**waiting, **self.running} == self.requests
        assert len(waiting) + len(self.running) == len(self.requests)
        assert all((one in self.batch) != (name in self.prefilling) for name, one in self.running.items())
        assert self.prefilling.keys() <= self.running.keys()
        assert sum(map(self.num_held, self.running.values())) + self.blocks.num_free == self.blocks.num_blocks
        assert not any(name in self.swapped for name in self.running)
        self.swapped.check()
