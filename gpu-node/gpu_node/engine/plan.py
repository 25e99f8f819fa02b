"""The border between bookkeeping and execution: what a step shall compute, and what came out of it.

Plain integers both ways: the scheduler never sees a tensor, an executor never sees a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draw:
    """How to draw the next token of a sequence."""

    sampling: Sampling
    position: int
    """Place of the drawn token in the request's output: with the seed, all that the draw may depend on."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy-on-write: the content of ``source``, as it was before the step, goes to ``destination``."""

    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The part of one sequence that a step computes: prefill chunk, decode and recompute look the same."""

    sequence_id: int
    token_ids: tuple[int, ...]
    """Tokens to compute, at positions ``start, start + 1, …`` of the sequence; at least one."""
    start: int
    """Tokens before them whose keys and values lie in the blocks already."""
    block_table: tuple[int, ...]
    """Block of positions ``[i * block_size, (i + 1) * block_size)`` at index i; covers all tokens of this step."""
    draw: Draw | None
    """None while more tokens of the sequence are to be computed before the next can be drawn."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. All ``copies`` take place before anything is computed, and as if all at the same time."""

    sequences: tuple[ScheduledSequence, ...]
    copies: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return sum(len(sequence.token_ids) for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: one token or one error for every sequence that had a draw."""

    token_ids: Mapping[int, int]
    """Drawn token by sequence id."""
    duration_s: float
    """How long the step took, measured or predicted by the executor."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """By sequence id, why no token could be drawn; it ends that request and no other."""
