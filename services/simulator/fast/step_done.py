"""What one step of the fast engine computes and moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_node.engine.requests.chunk import OutputChunk
from services.simulator.fast.sequence import FastSequence


class DraftedRows(NamedTuple):
    """Of one sequence that does not decode with the batch."""

    sequence: FastSequence
    start: int
    end: int


@dataclass(slots=True)
class StepDone:
    """A step as it is drafted, and what came of it."""

    num_left_tokens: int
    """Of the budget."""
    decoded: set[str] = field(default_factory=set)
    """Who of the batch has a row, by request; all of it has where `all_decode`."""
    all_decode: bool = False
    prefills: dict[str, DraftedRows] = field(default_factory=dict)
    """Who has computed more than one row or its first, by request."""
    waking: list[FastSequence] = field(default_factory=list)
    """Back from host memory, but computed from the next step on."""
    restored: list[str] = field(default_factory=list)
    """Requests that went on from what was kept of them."""
    num_restored_bytes: int = 0
    num_blocks_out: int = 0
    num_blocks_in: int = 0
    """Of those that gave way, moved to host memory and back."""
    num_tokens: int = 0
    num_context_tokens: int = 0
    num_attended_tokens: int = 0
    chunks: list[OutputChunk] = field(default_factory=list)

    @property
    def num_moved_blocks(self) -> int:
        """Both ways."""
        return self.num_blocks_out + self.num_blocks_in

    def has_decoded(self, request_id: str) -> bool:
        """Whether one of the batch has a row."""
        return self.all_decode or request_id in self.decoded

    def prefill(self, sequence: FastSequence, start: int, end: int) -> None:
        """Draft rows of one sequence."""
        self.prefills[sequence.payload.request_id] = DraftedRows(sequence, start, end)
        self.num_left_tokens -= end - start

    def decode(self, request_id: str) -> None:
        """Draft the row of one of the batch."""
        self.decoded.add(request_id)
        self.num_left_tokens -= 1

    def discard(self, request_id: str) -> None:
        """It has given way: what was drafted of it goes back to the budget."""
        rows = self.prefills.pop(request_id, None)
        if rows is not None:
            self.num_left_tokens += rows.end - rows.start
        elif request_id in self.decoded:
            self.decoded.discard(request_id)
            self.num_left_tokens += 1

    def count(self, num_decodes: int, num_decode_context_tokens: int) -> None:
        """The step is drafted: sum it up, with a batch of so many rows, each of which attends to all of its context.

        Of a prefill, the context is read once, and the row at position p attends to p + 1 tokens.
        """
        self.num_tokens = num_decodes
        self.num_context_tokens = self.num_attended_tokens = num_decode_context_tokens
        for _, start, end in self.prefills.values():
            num_rows = end - start
            self.num_tokens += num_rows
            self.num_context_tokens += end
            self.num_attended_tokens += num_rows * start + num_rows * (num_rows + 1) // 2
