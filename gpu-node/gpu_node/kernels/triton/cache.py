"""Keys and values in the pages of a device's arena, and the rows of a step that lie in them.

A block is one piece, [layer][head][keys, values], as it is on the CPU device, so a copy, a swap or a lent page is the
same. Within a head the CPU interleaves keys for its own dot products; here keys are [token][head_dim] like values, so
that neighbouring threads read neighbouring numbers and a tile is what tensor cores take. A place is counted in lines of
64 bytes: 32 bits reach 128 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpu_node.engine.arena import LINE_BYTES
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.launch import require

MAX_LINES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a block of a model holds."""

    num_layers: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    @property
    def layer_numbers(self) -> int:
        """Numbers of one block in one layer."""
        return 2 * self.num_kv_heads * self.block_size * self.head_dim

    def block_lines(self, number_bytes: int) -> int:
        """Lines that a block takes: all its layers, in whole lines."""
        return -(-self.num_layers * self.layer_numbers * number_bytes // LINE_BYTES)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a model's blocks begin in an arena: block ``page * blocks_per_page + slot`` in that slot of that page."""

    page_lines: int
    block_lines: int

    @property
    def blocks_per_page(self) -> int:
        """Whole blocks in a page."""
        return self.page_lines // self.block_lines

    def line(self, block: int) -> int:
        """The line where a block begins."""
        page, slot = divmod(block, self.blocks_per_page)
        return page * self.page_lines + slot * self.block_lines


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys and values in an arena that models may share."""

    numbers: torch.Tensor
    """[numbers]: the whole arena, as numbers of the model's type."""
    shape: CacheShape
    layer: int

    def __post_init__(self) -> None:
        require(self.numbers.is_floating_point() and self.numbers.dim() == 1, "an arena is floats, [numbers]")
        require(self.numbers.is_contiguous(), "an arena has no gaps")
        require(0 <= self.layer < self.shape.num_layers, "a layer that the cache has")
        require(self.numbers.nbytes // LINE_BYTES <= MAX_LINES, "an arena has fewer than 128 GiB")

    @property
    def line_numbers(self) -> int:
        """Numbers in a line."""
        return LINE_BYTES // self.numbers.element_size()

    @property
    def first(self) -> int:
        """Where in a block the layer begins."""
        return self.layer * self.shape.layer_numbers


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """Where the rows of a step lie, on the device. All int32."""

    positions: torch.Tensor
    """[rows]: place of each row in its sequence."""
    row_lines: torch.Tensor
    """[rows]: where the block begins that takes the row's key and value."""
    block_lines: torch.Tensor
    """[sequences, most blocks of one]: block tables by the lines where blocks begin; what is beyond is not read."""
    first_rows: torch.Tensor
    """[sequences]: the first row of each."""
    starts: torch.Tensor
    """[sequences]: position of that row."""
    num_rows: torch.Tensor
    """[sequences]."""
    decodes: torch.Tensor
    """Sequences of one row, whose contexts are split."""
    tiles: torch.Tensor
    """[tiles, 2]: sequence and first of its rows, of all others: rows that one program takes together."""
    rows_together: int
    max_context_tokens: int
    """Of the longest decode."""


def device_batch(
    sequences: Sequence[PagedSequence],
    block_size: int,
    places: Places,
    device: torch.device,
    *,
    rows_together: int,
    splits_decodes: bool = True,
) -> DeviceBatch:
    """Lay out a step. The rows of each sequence are consecutive, in the given order of sequences.

    Attention takes up to ``rows_together`` rows of a sequence at a time. ``splits_decodes=False`` is the plain path:
    single rows like any others, none over a part of its context.
    """
    positions: list[int] = []
    row_lines: list[int] = []
    first_rows: list[int] = []
    decodes: list[int] = []
    tiles: list[tuple[int, int]] = []
    tables = [[places.line(block) for block in sequence.block_table] for sequence in sequences]
    for number, (sequence, table) in enumerate(zip(sequences, tables, strict=True)):
        first_rows.append(len(positions))
        rows = range(sequence.start, sequence.start + sequence.num_rows)
        require(len(rows) > 0 and rows[-1] // block_size < len(table), "a sequence has rows, and blocks for all")
        positions += rows
        row_lines += [table[position // block_size] for position in rows]
        if len(rows) == 1 and splits_decodes:
            decodes.append(number)
        else:
            tiles += [(number, row) for row in range(0, len(rows), rows_together)]
    most_blocks = max(map(len, tables), default=0)

    def int32(values: Sequence[object], *shape: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32).reshape(shape or (-1,)).to(device)

    return DeviceBatch(
        positions=int32(positions),
        row_lines=int32(row_lines),
        block_lines=int32([[*table, *[0] * (most_blocks - len(table))] for table in tables], len(tables), most_blocks),
        first_rows=int32(first_rows),
        starts=int32([sequence.start for sequence in sequences]),
        num_rows=int32([sequence.num_rows for sequence in sequences]),
        decodes=int32(decodes),
        tiles=int32(tiles, len(tiles), 2),
        rows_together=rows_together,
        max_context_tokens=max((sequences[number].start + 1 for number in decodes), default=0),
    )
