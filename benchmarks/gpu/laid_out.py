"""Rows of one layer's attention, of Llama 3 8B, over blocks that lie in random order, as an engine leaves them."""

from __future__ import annotations

import torch

from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention.attention import paged_attention
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places, device_batch

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 16
SHAPE = CacheShape(1, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)


class LaidOut:
    """Sequences of one length in an arena of their own: each has ``num_rows`` rows behind ``start`` tokens."""

    def __init__(self, num_sequences: int, start: int, num_rows: int, device: torch.device) -> None:
        self.blocks_each = -(-(start + num_rows) // BLOCK_SIZE)
        num_blocks = num_sequences * self.blocks_each
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).tolist()
        tables = (order[first : first + self.blocks_each] for first in range(0, num_blocks, self.blocks_each))
        lines = SHAPE.block_lines(2)
        self.places = Places(num_blocks * lines, lines)
        self.cache = LayerCache(torch.randn(num_blocks * lines * 32, device=device).bfloat16(), SHAPE, 0)
        self.batch = device_batch(
            [PagedSequence(start, num_rows, table) for table in tables],
            BLOCK_SIZE,
            self.places,
            device,
            rows_together=rows_together(NUM_HEADS // NUM_KV_HEADS),
        )
        self.q = torch.randn(num_sequences * num_rows, NUM_HEADS * HEAD_DIM, device=device).bfloat16()
        self.out = torch.empty_like(self.q)

    def attend(self) -> None:
        """All rows, each to what stands before it."""
        paged_attention(self.q, self.cache, self.batch, self.out)
