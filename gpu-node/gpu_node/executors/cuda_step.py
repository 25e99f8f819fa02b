"""A planned step on a CUDA device: tokens, rows, and where they lie, for the whole batch and for shares of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpu_node.graph.program import Rows
from gpu_node.graph.share import Share, sequences_of
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.cache import DeviceBatch, Places, device_batch


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """What a model's steps have in common."""

    block_size: int
    places: Places
    device: torch.device
    rows_together: int
    """That prefill takes at a time."""

    def batch(self, sequences: Sequence[PagedSequence]) -> DeviceBatch:
        """Where the rows of these lie."""
        return device_batch(sequences, self.block_size, self.places, self.device, rows_together=self.rows_together)


class CudaStep:
    """What changes from step to step."""

    def __init__(
        self, layout: BatchLayout, sequences: Sequence[PagedSequence], token_ids: torch.Tensor, draw_rows: Sequence[int]
    ) -> None:
        """``token_ids`` int64 [rows], on the device; ``draw_rows``: those whose logits are wanted, ascending."""
        self.token_ids = token_ids
        self._layout = layout
        self._sequences = sequences
        self._num_rows = [sequence.num_rows for sequence in sequences]
        self._draw_rows = list(draw_rows)
        self._rows: dict[tuple[Rows, Share], slice] = {}  # every operator asks, layer after layer
        self._batches: dict[Share, DeviceBatch] = {}
        self._selected: dict[Share, torch.Tensor] = {}

    def rows(self, rows: Rows, share: Share) -> slice:
        """Of a share, among all rows or all draws."""
        if (rows, share) not in self._rows:
            sequences = sequences_of(self._num_rows, share)
            cuts = [sum(self._num_rows[: sequences.start]), sum(self._num_rows[: sequences.stop])]
            if rows is Rows.DRAWS:
                cuts = [bisect_left(self._draw_rows, cut) for cut in cuts]
            self._rows[rows, share] = slice(*cuts)
        return self._rows[rows, share]

    def batch(self, share: Share) -> DeviceBatch:
        """Where the rows of a share lie."""
        if share not in self._batches:
            sequences = sequences_of(self._num_rows, share)
            self._batches[share] = self._layout.batch(self._sequences[sequences.start : sequences.stop])
        return self._batches[share]

    def draw_rows(self, share: Share) -> torch.Tensor:
        """The rows of a share that draw, counted from its first row: int64 [draws]."""
        if share not in self._selected:
            first = self.rows(Rows.TOKENS, share).start
            rows = [row - first for row in self._draw_rows[self.rows(Rows.DRAWS, share)]]
            self._selected[share] = torch.tensor(rows, dtype=torch.int64).to(self._layout.device)
        return self._selected[share]
