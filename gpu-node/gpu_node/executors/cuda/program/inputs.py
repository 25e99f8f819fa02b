"""What changes from step to step, at fixed places of a device's memory: captured launches read it there, step by step.

A step is written into pinned host memory and goes over in one transfer. On the device, steps come one behind the other,
so none overwrites what the one before still reads. On the host they do not: hence the ring (`PinnedRing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from gpu_node.engine.border.plan import NO_ADAPTER
from gpu_node.executors.cuda.memory.marks import mark
from gpu_node.executors.cuda.memory.pinned_ring import PinnedRing
from gpu_node.kernels.triton.attention.decode_attention import num_splits
from gpu_node.kernels.triton.cache import DeviceBatch
from gpu_node.kernels.triton.launch import num_processors

NUM_COUNTS = 3
"""Of `DeviceBatch.counts`."""
NUM_SPAN = 3
"""Of `RemoteRows.span`."""
NUM_BUFFERS = 4
"""Steps whose inputs may be on their way; a scheduler is one or two ahead."""
NOBODY_REMOTE = (0, 0, 0)
ALIGNED_NUMBERS = 16
"""Each input begins at a line of 64 bytes."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """The largest step."""

    num_rows: int
    num_sequences: int
    num_blocks: int
    """Of one sequence."""
    context_tokens: int
    rows_together: int
    """That prefill takes at a time."""
    num_kv_heads: int
    has_adapters: bool = False
    """Rows may have one."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Numbers of each input. Block tables come last: of a step, only those that it has are sent."""
        by_row = dict.fromkeys(("token_ids", "positions", "row_lines"), self.num_rows)
        names = ("first_blocks", "first_rows", "starts", "num_rows", "decodes", "draw_rows")
        by_sequence = dict.fromkeys(names, self.num_sequences + 1)  # padding rows may be one more
        num_tiles = self.num_rows // self.rows_together + self.num_sequences + 1
        return {
            "counts": NUM_COUNTS,
            "span": NUM_SPAN,
            **by_row,
            **by_sequence,
            "adapters": self.num_rows if self.has_adapters else 0,
            "tiles": 2 * num_tiles,
            "block_lines": self.num_sequences * self.num_blocks,
        }


class StepInputs:
    """The inputs of one model's steps."""

    def __init__(self, limits: InputLimits, cells: torch.Tensor, device: torch.device) -> None:
        """``cells`` int32: drawn tokens, which ids below 0 are the marks of."""
        self.limits = limits
        self.cells = cells
        self._sizes = limits.sizes
        lengths = [-(-size // ALIGNED_NUMBERS) * ALIGNED_NUMBERS for size in self._sizes.values()]
        ends = list(accumulate(lengths))
        self._begins = dict(zip(self._sizes, [0, *ends], strict=False))
        self._there = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        self._ring = PinnedRing(NUM_BUFFERS, torch.Size((ends[-1],)), torch.int32, device)
        self.token_ids = self._whole("token_ids")
        """[rows]: ids, or below 0 the marks of cells."""
        self.draw_rows = self._whole("draw_rows")
        """[draws]: the rows whose logits are wanted, ascending."""
        self.adapters = self._whole("adapters")
        """[rows]: the adapter of each, or -1; empty where there are none."""
        self.span = self._whole("span")
        """[3]: the first remote row, the first remote sequence, how many there are."""
        self.batch = DeviceBatch(
            positions=self._whole("positions"),
            row_lines=self._whole("row_lines"),
            block_lines=self._whole("block_lines"),
            first_blocks=self._whole("first_blocks"),
            first_rows=self._whole("first_rows"),
            starts=self._whole("starts"),
            num_rows=self._whole("num_rows"),
            decodes=self._whole("decodes"),
            tiles=self._whole("tiles").view(-1, 2),
            rows_together=limits.rows_together,
            max_context_tokens=limits.context_tokens,
            counts=self._whole("counts"),
        )
        """In full length: of a step, the beginnings are valid."""
        self._num_processors = num_processors(device)

    def _whole(self, name: str) -> torch.Tensor:
        return self._there.narrow(0, self._begins[name], self._sizes[name])

    def send(
        self,
        token_ids: Sequence[int],
        draw_rows: Sequence[int],
        batch: DeviceBatch,
        span: tuple[int, int, int] = NOBODY_REMOTE,
        adapters: Sequence[int] = (),
    ) -> None:
        """Queue the inputs of the next step, ``batch`` as `lay_out` makes it. `ValueError` for a step too large.

        ``span``: the first remote row, the first remote sequence, and how many there are. ``adapters`` of the first
        rows, the others having none.
        """
        splits = num_splits(
            len(batch.decodes) * self.limits.num_kv_heads, self.limits.context_tokens, self._num_processors
        )
        given = {
            "counts": torch.tensor([len(batch.decodes), len(batch.tiles), splits], dtype=torch.int32),
            "span": torch.tensor(span, dtype=torch.int32),
            "token_ids": torch.tensor(token_ids, dtype=torch.int32),
            "positions": batch.positions,
            "row_lines": batch.row_lines,
            "first_blocks": batch.first_blocks,
            "first_rows": batch.first_rows,
            "starts": batch.starts,
            "num_rows": batch.num_rows,
            "decodes": batch.decodes,
            "draw_rows": torch.tensor(draw_rows, dtype=torch.int32),
            "adapters": torch.tensor(self._padded(adapters, len(token_ids)), dtype=torch.int32),
            "tiles": batch.tiles.flatten(),
            "block_lines": batch.block_lines,
        }
        buffer = self._ring.next()
        for name, values in given.items():
            if len(values) > self._sizes[name]:
                raise ValueError(f"a step with {len(values)} {name}; {self._sizes[name]} are the most")
            buffer.narrow(0, self._begins[name], len(values)).copy_(values)
        num_numbers = self._begins["block_lines"] + len(batch.block_lines)
        self._there[:num_numbers].copy_(buffer[:num_numbers], non_blocking=True)
        self._ring.queued(mark(self._there.device))

    def _padded(self, adapters: Sequence[int], num_rows: int) -> Sequence[int]:
        return [*adapters, *[NO_ADAPTER] * (num_rows - len(adapters))] if self.limits.has_adapters else ()
