"""What forks save: several sequences of one request in the block manager's tables, against each with blocks of its own.

Counted as in PagedAttention (SOSP'23, §6.3, figure 15): saved = (blocks without sharing - blocks with it) / blocks
without, blocks being added up over steps. Requests are looked at one by one, since none shares with another; a long
answer so weighs by all its steps, as it does in a batch. All sequences of a request are as long as the trace says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.paging.trace import TraceRequest

_MODEL = "lengths"


class Branching(Protocol):
    """Which sequence goes on from which, draw by draw."""

    def parents(self, num_living: int) -> Sequence[int]:
        """For every sequence after the next draw, the one of ``num_living`` that it continues. One lives at first."""
        ...


class ParallelSampling:
    """All samples begin with the prompt, and then each goes its own way."""

    def __init__(self, num_sequences: int) -> None:
        self._num_sequences = num_sequences

    def parents(self, num_living: int) -> Sequence[int]:
        """The prompt's sequence at first, then each one's own."""
        return [number % num_living for number in range(self._num_sequences)]


def parallel_sampling(num_sequences: int, request_number: int) -> ParallelSampling:
    """Samples of one request among many; all requests do the same."""
    del request_number
    return ParallelSampling(num_sequences)


@dataclass(frozen=True, slots=True)
class Saving:
    """Blocks held, added up over the steps of all requests."""

    method: str
    num_sequences: int
    num_shared_blocks: int
    """With sharing."""
    num_own_blocks: int
    """Without."""
    num_copies: int
    """Copy-on-write, in all."""
    survival: float
    """Part of the sequences that are continued by one or more after a draw; 1 when none falls out."""

    @property
    def saved(self) -> float:
        """Part of the blocks that sharing saves."""
        return 1.0 - self.num_shared_blocks / self.num_own_blocks

    def to_json(self) -> dict[str, Any]:
        """Sums over steps are blocks × steps."""
        return {
            "method": self.method,
            "sequences": self.num_sequences,
            "saved": self.saved,
            "block_steps_with_sharing": self.num_shared_blocks,
            "block_steps_without": self.num_own_blocks,
            "copies": self.num_copies,
            "survival": self.survival,
        }


def measure(
    method: str,
    num_sequences: int,
    requests: Sequence[TraceRequest],
    branching: Callable[[int], Branching],
    block_size: int,
    advance: Callable[[int], None],
) -> Saving:
    """Grow ``num_sequences`` of each request; ``branching`` gives the rule for request number i."""
    longest = max(request.num_slots for request in requests)
    blocks = BlockManager.alone(num_sequences * -(-longest // block_size), block_size, _MODEL)
    books = _Books(blocks, num_sequences)
    for number, request in enumerate(requests):
        books.grow(request, branching(number))
        assert blocks.num_used_blocks == 0, "no block is lost"
        advance(1)
    return Saving(
        method=method,
        num_sequences=num_sequences,
        num_shared_blocks=books.num_shared_blocks,
        num_own_blocks=books.num_own_blocks,
        num_copies=books.num_copies,
        survival=books.num_survivors / books.num_candidates if books.num_candidates else 1.0,
    )


class _Books:
    """The block manager's verbs (open, fork, append, free) in the order of decoding, and the sums."""

    def __init__(self, blocks: BlockManager, num_sequences: int) -> None:
        self._blocks = blocks
        self._num_sequences = num_sequences
        self._ids = count()
        self.num_shared_blocks = self.num_own_blocks = self.num_copies = 0
        self.num_survivors = self.num_candidates = 0

    def grow(self, request: TraceRequest, branching: Branching) -> None:
        """Prefill once; then draw, fork and write one token of each sequence at a time; free all at the end."""
        living = [next(self._ids)]
        self._blocks.open(living[0], [0] * request.input_tokens)
        self._blocks.append(living[0], 0, request.input_tokens)
        self._count(request.input_tokens)
        for position in range(request.input_tokens, request.num_slots):
            living = self._branch(living, branching.parents(len(living)))
            for sequence in living:
                self.num_copies += len(self._blocks.append(sequence, position, position + 1))
            self._count(position + 1)
        for sequence in living:
            self._blocks.free(sequence)

    def _branch(self, living: list[int], parents: Sequence[int]) -> list[int]:
        """The first child of a sequence takes over its table, others fork it; without a child it is freed."""
        assert len(parents) == self._num_sequences
        survivors = set(parents)
        if len(living) == self._num_sequences:  # not the draw that follows the prompt
            self.num_survivors += len(survivors)
            self.num_candidates += len(living)
        for number, sequence in enumerate(living):
            if number not in survivors:
                self._blocks.free(sequence)
        children = []
        for parent in parents:
            if parent in survivors:
                survivors.remove(parent)
                children.append(living[parent])
            else:
                children.append(next(self._ids))
                self._blocks.fork(living[parent], children[-1])
        return children

    def _count(self, num_tokens: int) -> None:
        """Add up one step, in which every sequence has ``num_tokens``."""
        self.num_shared_blocks += self._blocks.num_used_blocks
        self.num_own_blocks += self._num_sequences * -(-num_tokens // self._blocks.block_size)
