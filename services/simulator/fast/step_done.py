"""What one step of the fast engine computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_node.engine.requests.chunk import OutputChunk
from services.simulator.fast.sequence import FastSequence


@dataclass(slots=True)
class StepDone:
    """What a step computed."""

    num_tokens: int = 0
    num_context_tokens: int = 0
    num_attended_tokens: int = 0
    chunks: list[OutputChunk] = field(default_factory=list)
    prefills: list[tuple[FastSequence, int]] = field(default_factory=list)
    """Who has computed more than one row or its first, and up to where."""
    resting: list[FastSequence] = field(default_factory=list)
    """Back from host memory, but without room for another token yet."""
    restored: list[str] = field(default_factory=list)
    """Requests that went on from what was kept of them."""
    num_restored_bytes: int = 0

    def prefill(self, sequence: FastSequence, start: int, end: int) -> None:
        """Rows of one sequence: its context is read once, and the row at position p attends to p + 1 tokens."""
        self.prefills.append((sequence, end))
        num_rows = end - start
        self.num_tokens += num_rows
        self.num_context_tokens += end
        self.num_attended_tokens += num_rows * start + num_rows * (num_rows + 1) // 2
