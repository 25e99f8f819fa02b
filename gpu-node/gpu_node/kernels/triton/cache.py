"""Keys and values in the pages of a device's arena, and the rows of a step that lie in them.

A block is one piece, [layer][head][keys, values], as it is on the CPU device, so a copy, a swap or a lent page is the
same. Within a head the CPU interleaves keys for its own dot products; here keys are [token][head_dim] like values, so
that neighbouring threads read neighbouring numbers and a tile is what tensor cores take. A place is counted in lines of
64 bytes: 32 bits reach 128 GiB.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import torch

from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.launch import require
from shared.files.kv_paging import LINE_BYTES

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

    def block_numbers(self, number_bytes: int) -> int:
        """Numbers that have room in these lines."""
        return self.block_lines(number_bytes) * LINE_BYTES // number_bytes


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

    def lines(self, blocks: torch.Tensor) -> torch.Tensor:
        """The lines where ``blocks`` int32 begin."""
        pages = blocks // self.blocks_per_page
        return pages * self.page_lines + (blocks - pages * self.blocks_per_page) * self.block_lines


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
    """Where the rows of a step lie. Tensors are int32."""

    positions: torch.Tensor
    """[rows]: place of each row in its sequence."""
    row_lines: torch.Tensor
    """[rows]: where the block begins that takes the row's key and value; `NOWHERE` for a row that is not kept."""
    block_lines: torch.Tensor
    """[blocks]: where the blocks of each sequence begin, in their order, sequence after sequence."""
    first_blocks: torch.Tensor
    """[sequences]: the place of each one's first block in ``block_lines``."""
    first_rows: torch.Tensor
    """[sequences]: the first row of each."""
    starts: torch.Tensor
    """[sequences]: position of that row; so far below 0 that no row's position is above, the sequence sees nothing."""
    num_rows: torch.Tensor
    """[sequences]."""
    decodes: torch.Tensor
    """Sequences of one row, whose contexts are split."""
    tiles: torch.Tensor
    """[tiles, 2]: sequence and first of its rows, of all others: rows that one program takes together."""
    rows_together: int
    max_context_tokens: int
    """No decode sees more."""
    counts: torch.Tensor | None = None
    """[3]: how many of ``decodes``, then of ``tiles``, a step has, and the parts of each decode's context; None where
    that is known when kernels are launched."""

    def to(self, device: torch.device) -> DeviceBatch:
        """The same there."""
        found: dict[str, Any] = {
            one.name: values.to(device)
            for one in fields(self)
            if isinstance(values := getattr(self, one.name), torch.Tensor)
        }
        return replace(self, **found)


NOWHERE = -1


def device_batch(
    sequences: Sequence[PagedSequence],
    block_size: int,
    places: Places,
    device: torch.device,
    *,
    rows_together: int,
    splits_decodes: bool = True,
) -> DeviceBatch:
    """`lay_out` on the device, in tensors of its own."""
    batch = lay_out(sequences, block_size, places, rows_together=rows_together, splits_decodes=splits_decodes)
    return batch.to(device)


def lay_out(
    sequences: Sequence[PagedSequence],
    block_size: int,
    places: Places,
    *,
    rows_together: int,
    splits_decodes: bool = True,
    padding: Sequence[int] = (),
) -> DeviceBatch:
    """Lay out a step, in host memory. The rows of each sequence are consecutive, in the given order of sequences.

    Attention takes up to ``rows_together`` rows of a sequence at a time. ``splits_decodes=False`` is the plain path:
    single rows like any others, none over a part of its context. ``padding``: sequences of no request, of so many rows,
    which come last, are written nowhere and see nothing.
    """
    blocks = array("i", chain.from_iterable(sequence.block_table for sequence in sequences))
    num_blocks = _int32([len(sequence.block_table) for sequence in sequences])
    starts = _int32([sequence.start for sequence in sequences])
    num_rows = _int32([sequence.num_rows for sequence in sequences])
    require(
        bool(((num_rows > 0) & (starts + num_rows <= num_blocks * block_size)).all()),
        "a sequence has rows, and blocks for all",
    )
    block_lines = places.lines(torch.frombuffer(blocks, dtype=torch.int32) if blocks else _int32([]))
    first_blocks, first_rows = _sums_before(num_blocks), _sums_before(num_rows)
    sequence_of = torch.arange(len(sequences)).repeat_interleave(num_rows)
    positions = torch.arange(len(sequence_of), dtype=torch.int32) + (starts - first_rows)[sequence_of]
    row_lines = block_lines[first_blocks[sequence_of] + positions // block_size]
    longest = int(((starts + 1) * (num_rows == 1)).max()) if sequences and splits_decodes else 0
    nobodys_rows = _int32(padding)
    num_nobodys = sum(padding)
    first_rows = torch.cat((first_rows, len(positions) + _sums_before(nobodys_rows)))
    num_rows, starts = torch.cat((num_rows, nobodys_rows)), torch.cat((starts, -nobodys_rows))
    is_decode = (num_rows == 1) & splits_decodes
    return DeviceBatch(
        positions=_padded(positions, num_nobodys, 0),
        row_lines=_padded(row_lines, num_nobodys, NOWHERE),
        block_lines=block_lines,
        first_blocks=_padded(first_blocks, len(padding), 0),
        first_rows=first_rows,
        starts=starts,
        num_rows=num_rows,
        decodes=is_decode.nonzero()[:, 0].to(torch.int32),
        tiles=_tiles(num_rows, ~is_decode, rows_together),
        rows_together=rows_together,
        max_context_tokens=longest,
    )


def _tiles(num_rows: torch.Tensor, taken: torch.Tensor, rows_together: int) -> torch.Tensor:
    """[tiles, 2]: sequence and first row of every ``rows_together`` rows of the sequences that are ``taken``."""
    nums_tiles = torch.where(taken, -(-num_rows // rows_together), 0)
    sequence_of = torch.arange(len(num_rows)).repeat_interleave(nums_tiles)
    number = torch.arange(len(sequence_of), dtype=torch.int32) - _sums_before(nums_tiles)[sequence_of]
    return torch.stack((sequence_of.to(torch.int32), number * rows_together), dim=1)


def _sums_before(values: torch.Tensor) -> torch.Tensor:
    return (values.cumsum(0) - values).to(torch.int32)


def _padded(values: torch.Tensor, num_padding: int, value: int) -> torch.Tensor:
    return torch.cat((values, values.new_full((num_padding,), value)))


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
