"""The buffers of one step in plain torch: whole ones, views of their columns, and shares of their rows."""

from __future__ import annotations

import torch

from gpu_node.graph.program import POSITIONS, TOKEN_IDS, Buffer, Program, Rows
from gpu_node.graph.share import BatchLayout, Share
from gpu_node.kernels.paged_batch import PagedBatch, paged_batch


class StepMemory:
    """Values of buffers; what has not been written is NaN."""

    def __init__(
        self,
        program: Program,
        token_ids: torch.Tensor,
        batch: PagedBatch,
        draw_rows: torch.Tensor,
        adapters: torch.Tensor | None = None,
    ) -> None:
        """``token_ids`` int64 [rows]; ``draw_rows`` int64 [draws], in ascending order; ``adapters`` int64 [rows]."""
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._values = {TOKEN_IDS: token_ids, POSITIONS: batch.positions}
        self._batch = batch
        self._draw_rows = draw_rows
        self._adapters = adapters
        self._layout = BatchLayout(batch.num_rows, batch.num_remote)
        self._batches: dict[Share, PagedBatch] = {}

    def read(self, name: str, share: Share) -> torch.Tensor:
        """The columns of a buffer, in the rows of a share."""
        buffer = self._buffers.get(name)
        if buffer is None:  # the step's own
            return self._values[name][self._rows(Rows.TOKENS, share)]
        return self._columns(buffer)[self._rows(buffer.rows, share)]

    def write(self, name: str, share: Share, values: torch.Tensor) -> None:
        """Put ``values`` into the columns of a buffer, in the rows of a share."""
        buffer = self._buffers[name]
        if buffer.view_of is None and share.is_whole:
            self._values[name] = values
        else:
            self._columns(buffer)[self._rows(buffer.rows, share)] = values

    def batch(self, share: Share) -> PagedBatch:
        """Where the rows of a share lie."""
        if share.is_whole:
            return self._batch
        if share not in self._batches:
            sequences = self._layout.sequences(share)
            part = self._batch.sequences[sequences.start : sequences.stop]
            self._batches[share] = paged_batch(part, self._batch.block_size)
        return self._batches[share]

    def draw_rows(self, share: Share) -> torch.Tensor:
        """The rows that draw a token, counted from the share's first row: int64 [draws]."""
        drawn: torch.Tensor = self._draw_rows[self._rows(Rows.DRAWS, share)]
        return drawn - int(self._rows(Rows.TOKENS, share).start)

    def adapters(self, name: str, share: Share) -> torch.Tensor:
        """The adapter of each row that a buffer has in a share: int64."""
        rows = self._buffers[name].rows
        assert self._adapters is not None, "a program with adapters is told those of its rows"
        adapters = self._adapters if rows is Rows.TOKENS else self._adapters[self._draw_rows]
        return adapters[self._rows(rows, share)]

    def _columns(self, buffer: Buffer) -> torch.Tensor:
        whole = self._buffers[buffer.view_of] if buffer.view_of else buffer
        if whole.name not in self._values:
            num_rows = len(self._batch.positions) if whole.rows is Rows.TOKENS else len(self._draw_rows)
            self._values[whole.name] = torch.full((num_rows, whole.num_columns), torch.nan)
        return self._values[whole.name].narrow(1, buffer.first_column, buffer.num_columns)

    def _rows(self, rows: Rows, share: Share) -> slice:
        if rows is Rows.TOKENS:
            return self._layout.rows(share)
        return self._layout.draws(share, self._draw_rows.tolist())
