"""Where the rows of one step lie: their positions, their KV slots, and the groups in which attention takes them.

Made once a step, used by every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

GROUP_CONTEXT_TOKENS = 1024
"""A group gathers about so many tokens of KV at a time, so that they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class PagedSequence:
    """The rows of one sequence: ``num_rows`` tokens that follow ``start`` tokens, whose KV lies in ``block_table``."""

    start: int
    num_rows: int
    block_table: Sequence[int]


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Sequences of the same number of rows and nearly the same number of blocks: attention takes them as one batch."""

    rows: torch.Tensor
    """int64 [sequences, rows]: their rows in the step's batch."""
    block_tables: torch.Tensor
    """int64 [sequences, blocks]; short tables are filled up with block 0, which the mask hides."""
    visible: torch.Tensor
    """bool [sequences, rows, blocks * block_size]: a row sees its own position and those before it."""


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """All rows of a step, sequence after sequence."""

    positions: torch.Tensor
    """int64 [rows]: place of each row in its sequence."""
    blocks: torch.Tensor
    """int64 [rows]: the block that takes the row's key and value."""
    offsets: torch.Tensor
    """int64 [rows]: its slot there."""
    groups: tuple[AttentionGroup, ...]
    block_size: int
    sequences: tuple[PagedSequence, ...]
    num_remote: int = 0
    """Of the sequences, the last ones, whose keys and values lie elsewhere."""

    @property
    def num_rows(self) -> list[int]:
        """Of each sequence."""
        return [sequence.num_rows for sequence in self.sequences]


def paged_batch(sequences: Sequence[PagedSequence], block_size: int, num_remote: int = 0) -> PagedBatch:
    """Lay out a step. The rows of each sequence are consecutive, in the given order of sequences."""
    positions: list[int] = []
    blocks: list[int] = []
    alike: dict[tuple[int, int], list[tuple[int, PagedSequence]]] = {}
    for sequence in sequences:
        end = sequence.start + sequence.num_rows
        num_blocks = -(-end // block_size)
        assert sequence.num_rows > 0
        assert num_blocks <= len(sequence.block_table)
        # decodes of similar length go together: padding to the next power of two wastes less than half
        key = (sequence.num_rows, num_blocks.bit_length() if sequence.num_rows == 1 else len(positions))
        alike.setdefault(key, []).append((len(positions), sequence))
        positions += range(sequence.start, end)
        blocks += [sequence.block_table[position // block_size] for position in range(sequence.start, end)]
    row_positions = torch.tensor(positions, dtype=torch.int64)
    return PagedBatch(
        positions=row_positions,
        blocks=torch.tensor(blocks, dtype=torch.int64),
        offsets=row_positions % block_size,
        groups=tuple(
            _group(members, row_positions, block_size)
            for likes in alike.values()
            for members in _parts(likes, block_size)
        ),
        block_size=block_size,
        sequences=tuple(sequences),
        num_remote=num_remote,
    )


_Member = tuple[int, PagedSequence]
"""A sequence and the first of its rows."""


def _parts(members: list[_Member], block_size: int) -> Iterator[list[_Member]]:
    longest = max(sequence.start + sequence.num_rows for _, sequence in members)
    num_together = max(1, GROUP_CONTEXT_TOKENS // (-(-longest // block_size) * block_size))
    for first in range(0, len(members), num_together):
        yield members[first : first + num_together]


def _group(members: list[_Member], positions: torch.Tensor, block_size: int) -> AttentionGroup:
    num_rows = members[0][1].num_rows
    num_blocks = max(-(-(sequence.start + num_rows) // block_size) for _, sequence in members)
    tables = [list(sequence.block_table[:num_blocks]) for _, sequence in members]
    first_rows = torch.tensor([first for first, _ in members], dtype=torch.int64)
    rows = first_rows[:, None] + torch.arange(num_rows)
    context = torch.arange(num_blocks * block_size)
    return AttentionGroup(
        rows=rows,
        block_tables=torch.tensor([table + [0] * (num_blocks - len(table)) for table in tables], dtype=torch.int64),
        visible=context <= positions[rows][:, :, None],
    )
