"""The size of a step, as far as its cost depends on it: how many rows and draws, and what each row attends to."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.graph.share import BatchLayout, Share


@dataclass(frozen=True, slots=True)
class SequencePart:
    """``num_rows`` tokens of one sequence that follow ``start`` tokens computed before."""

    start: int
    num_rows: int

    def num_attended(self, window: int | None, *, both_sides: bool = False) -> int:
        """Pairs of a row and a token that it attends to; the row at position p sees p + 1, or ``window`` at most. With
        ``both_sides``, as many from its own on, and itself once."""
        return self._num_before(window) + (self._num_behind(window) if both_sides else 0)

    def _num_before(self, window: int | None) -> int:
        first, last = self.start + 1, self.start + self.num_rows
        if window is None or last <= window:
            return (first + last) * self.num_rows // 2
        num_growing = max(window - self.start, 0)
        return (first + window) * num_growing // 2 + (self.num_rows - num_growing) * window

    def _num_behind(self, window: int | None) -> int:
        if window is None or self.num_rows <= window:
            return self.num_rows * (self.num_rows - 1) // 2
        return window * (window - 1) // 2 + (self.num_rows - window) * (window - 1)

    def num_context_tokens(self, window: int | None) -> int:
        """Tokens whose keys and values are read, each once."""
        context = self.start + self.num_rows
        return context if window is None else min(context, window + self.num_rows - 1)


@dataclass(frozen=True, slots=True)
class StepShape:
    """One step: its sequences, and how many of them draw a token."""

    parts: tuple[SequencePart, ...]
    num_draws: int
    num_remote: int = 0
    """Of the sequences, the last ones, whose keys and values are not on the device."""

    @property
    def num_rows(self) -> int:
        """Rows of the batch."""
        return sum(part.num_rows for part in self.parts)

    def part(self, share: Share) -> StepShape:
        """What ``share`` covers; of the draws, whose sequences are not known here, as many as fall to its sequences."""
        layout = BatchLayout([part.num_rows for part in self.parts], self.num_remote)
        sequences = layout.sequences(share)
        num_all = max(1, len(self.parts))
        before = [self.num_draws * end // num_all for end in (sequences.start, sequences.stop)]
        num_remote = max(0, sequences.stop - max(sequences.start, len(self.parts) - self.num_remote))
        return StepShape(self.parts[sequences.start : sequences.stop], before[1] - before[0], num_remote)

    def num_attended(self, window: int | None = None, *, both_sides: bool = False) -> int:
        """Pairs of a row and a token that it attends to, all sequences together."""
        return sum(part.num_attended(window, both_sides=both_sides) for part in self.parts)

    def num_context_tokens(self, window: int | None = None) -> int:
        """Tokens whose keys and values are read, all sequences together."""
        return sum(part.num_context_tokens(window) for part in self.parts)


def even_step(num_rows: int, num_draws: int, context_tokens: int) -> StepShape:
    """Rows spread evenly over one sequence for each draw (at least one), each ``context_tokens`` long after the step.

    ``ValueError`` if there are fewer rows than sequences, or a sequence has more rows than tokens.
    """
    num_sequences = max(1, num_draws)
    if num_rows < num_sequences:
        raise ValueError(f"{num_draws} draws need {num_sequences} rows at least; there are {num_rows}")
    shares = [num_rows // num_sequences + (number < num_rows % num_sequences) for number in range(num_sequences)]
    if max(shares) > context_tokens:
        raise ValueError(f"a sequence of {context_tokens} tokens cannot have {max(shares)} rows in a step")
    return StepShape(tuple(SequencePart(context_tokens - share, share) for share in shares), num_draws)
