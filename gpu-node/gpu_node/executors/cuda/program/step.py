"""How a step on a CUDA device is cut: which of the fixed inputs and buffers are its own, and which a share's.

Knows how many rows each sequence has, and nothing that differs between two steps that are cut alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from gpu_node.executors.cuda.program.inputs import StepInputs
from gpu_node.graph.program import Rows
from gpu_node.graph.share import WHOLE, BatchLayout, Share
from gpu_node.kernels.triton.attention.remote_ring import RemoteRows
from gpu_node.kernels.triton.cache import DeviceBatch


class CudaStep:
    """What launches are given."""

    def __init__(
        self,
        inputs: StepInputs,
        num_rows: Sequence[int],
        draw_rows: Sequence[int],
        num_remote: int = 0,
        *,
        max_tiles: int | None = None,
        is_divided: bool = False,
    ) -> None:
        """``num_rows`` of each sequence, the last ``num_remote`` remote; ``draw_rows``: those whose logits are wanted.

        ``max_tiles``: it is of any sequences that have as many rows together and no more tiles: what there is of each
        is read on the device. Its only share is the whole.
        ``is_divided``: which rows are remote is read on the device, too: local and remote shares are launched on all
        rows, and find their own.
        """
        self.is_divided = is_divided
        self._inputs = inputs
        self._max_tiles = max_tiles
        self._layout = BatchLayout(num_rows, num_remote)
        self._draw_rows = draw_rows
        together = inputs.limits.rows_together
        nums_tiles = [0 if rows == 1 else -(-rows // together) for rows in num_rows]
        self._before_decode = [0, *accumulate(rows == 1 for rows in num_rows)]
        self._before_tile = [0, *accumulate(nums_tiles)]
        # every operator asks, layer after layer
        self.views: dict[object, torch.Tensor] = {}
        """What has been cut of buffers for this step already."""
        self._rows: dict[tuple[Rows, Share], slice] = {}
        self._attended: dict[Share, DeviceBatch] = {}
        self._written: dict[Share, DeviceBatch] = {}

    @property
    def cells(self) -> torch.Tensor:
        """int32: tokens that earlier steps have drawn."""
        return self._inputs.cells

    def rows(self, rows: Rows, share: Share) -> slice:
        """Of a share, among all rows or all draws."""
        share = self._seen(share)
        if (rows, share) not in self._rows:
            of_tokens = rows is Rows.TOKENS
            found = self._layout.rows(share) if of_tokens else self._layout.draws(share, self._draw_rows)
            self._rows[rows, share] = found
        return self._rows[rows, share]

    def token_ids(self, share: Share) -> torch.Tensor:
        """int32 [rows of the share]: ids, or below 0 the marks of cells."""
        return self._inputs.token_ids[self.rows(Rows.TOKENS, share)]

    def adapters(self, share: Share) -> torch.Tensor:
        """int32 [rows of the share]: the adapter of each, or -1."""
        return self._inputs.adapters[self.rows(Rows.TOKENS, share)]

    @property
    def all_adapters(self) -> torch.Tensor:
        """int32: those of all rows that a step may have, of which its own come first."""
        return self._inputs.adapters

    def positions(self, share: Share) -> torch.Tensor:
        """int32 [rows of the share]."""
        return self._inputs.batch.positions[self.rows(Rows.TOKENS, share)]

    def draw_rows(self, share: Share) -> torch.Tensor:
        """int32 [draws of the share]: their rows, counted from the first of the whole step."""
        return self._inputs.draw_rows[self.rows(Rows.DRAWS, share)]

    def _seen(self, share: Share) -> Share:
        return WHOLE if self.is_divided else share

    def written(self, share: Share) -> DeviceBatch:
        """For keys and values of the rows of a share."""
        share = self._seen(share)
        if share not in self._written:
            rows, whole = self.rows(Rows.TOKENS, share), self._inputs.batch
            cut = replace(whole, positions=whole.positions[rows], row_lines=whole.row_lines[rows])
            self._written[share] = cut
        return self._written[share]

    def remote_rows(self, share: Share) -> RemoteRows:
        """Of a share that is remote: where its rows lie at the receiver."""
        whole, rows = self._inputs.batch, self.rows(Rows.TOKENS, share)
        if self.is_divided:
            return RemoteRows(whole.positions[rows], whole.first_blocks, whole.block_lines, self._inputs.span)
        sequences = self._layout.sequences(share)
        assert len(sequences) == rows.stop - rows.start, "a remote sequence has one row"
        first_blocks = whole.first_blocks[sequences.start : sequences.stop]
        return RemoteRows(whole.positions[rows], first_blocks, whole.block_lines)

    def attended(self, share: Share) -> DeviceBatch:
        """For attention of the sequences of a share, over buffers of the whole step."""
        share = self._seen(share)
        if share not in self._attended and self._max_tiles is not None:
            assert share.is_whole, "sequences that are read on the device cannot be cut here"
            whole, num_rows = self._inputs.batch, self._layout.num_rows
            self._attended[share] = replace(
                whole,
                positions=whole.positions[:num_rows],
                row_lines=whole.row_lines[:num_rows],
                decodes=whole.decodes[:num_rows],
                tiles=whole.tiles[: self._max_tiles],
            )
        if share not in self._attended:
            whole, sequences = self._inputs.batch, self._layout.sequences(share)
            num_rows = self._layout.num_rows
            self._attended[share] = replace(
                whole,
                positions=whole.positions[:num_rows],
                row_lines=whole.row_lines[:num_rows],
                decodes=whole.decodes[_cut(self._before_decode, sequences)],
                tiles=whole.tiles[_cut(self._before_tile, sequences)],
                counts=None,
            )
        return self._attended[share]


def _cut(before: Sequence[int], sequences: range) -> slice:
    return slice(before[sequences.start], before[sequences.stop])
