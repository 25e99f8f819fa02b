"""Sequences that decode: each step moves all of them by one token, so they move together, in constant time.

A clock counts the steps. What a sequence has grown to is its offset plus the clock; when it needs another block is a
matter of the clock modulo the block size; when it ends is a time on the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from services.simulator.fast.sequence import FastSequence


class DecodeBatch:
    """The sequences that decode. All numbers hold between two steps."""

    def __init__(self, block_size: int) -> None:
        self.clock = 0
        self._block_size = block_size
        self._sequences: dict[str, FastSequence] = {}
        self._sum_offsets = 0
        self._num_crossing = [0] * block_size
        """Sequences that begin a block in a step, by the clock before it modulo the block size."""
        self._ends: list[tuple[int, int, FastSequence]] = []  # a heap; those that left stay until they are on top

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[FastSequence]:
        return iter(self._sequences.values())

    def __contains__(self, sequence: FastSequence) -> bool:
        return self._sequences.get(sequence.payload.request_id) is sequence

    def join(self, sequence: FastSequence) -> None:
        """From the next step on it decodes; ``offset`` is the number of its known tokens, all but the last computed."""
        sequence.offset -= self.clock
        self._sequences[sequence.payload.request_id] = sequence
        self._sum_offsets += sequence.offset
        self._num_crossing[(1 - sequence.offset) % self._block_size] += 1
        heapq.heappush(self._ends, (sequence.end_len - sequence.offset, sequence.rank, sequence))

    def leave(self, sequence: FastSequence) -> None:
        """It decodes no more; ``offset`` is the number of its known tokens again."""
        del self._sequences[sequence.payload.request_id]
        self._sum_offsets -= sequence.offset
        self._num_crossing[(1 - sequence.offset) % self._block_size] -= 1
        sequence.offset += self.clock

    def num_tokens(self, sequence: FastSequence) -> int:
        """Known tokens of one of them."""
        return sequence.offset + self.clock

    @property
    def num_context_tokens(self) -> int:
        """Tokens that all of them attend to in the next step; in each one after it, one more for each."""
        return self._sum_offsets + self.clock * len(self._sequences)

    def begins_block(self, sequence: FastSequence) -> bool:
        """Whether one of them needs another block in the next step."""
        return (sequence.offset + self.clock - 1) % self._block_size == 0

    def num_new_blocks(self, num_steps: int) -> int:
        """Blocks that they take in the next steps. O(block size)."""
        num_rounds, num_left = divmod(num_steps, self._block_size)
        rest = sum(self._num_crossing[(self.clock + step) % self._block_size] for step in range(num_left))
        return num_rounds * len(self._sequences) + rest

    def num_steps_within(self, num_blocks: int) -> int:
        """Most steps that take no more than so many blocks; there is a sequence. O(block size)."""
        num_rounds, num_left = divmod(num_blocks, len(self._sequences))
        num_steps = num_rounds * self._block_size
        while (num_left := num_left - self._num_crossing[(self.clock + num_steps) % self._block_size]) >= 0:
            num_steps += 1
        return num_steps

    def ends_moved(self) -> None:
        """Some of them end at another length now. O(sequences)."""
        self._ends = [(sequence.end_len - sequence.offset, sequence.rank, sequence) for sequence in self]
        heapq.heapify(self._ends)

    @property
    def num_steps_to_end(self) -> int:
        """Steps until the first of them ends; there is a sequence."""
        while self._ends[0][2] not in self or self._ends[0][0] != self._ends[0][2].end_len - self._ends[0][2].offset:
            heapq.heappop(self._ends)
        return self._ends[0][0] - self.clock

    def advance(self, num_steps: int) -> list[FastSequence]:
        """Let steps pass, at most up to the first end; returns those that are at their end, in order of admission."""
        self.clock += num_steps
        ended = []
        while self._ends and self._ends[0][0] <= self.clock:
            end, _, sequence = heapq.heappop(self._ends)
            if sequence in self and end == sequence.end_len - sequence.offset:
                ended.append(sequence)
        return ended
