"""KV blocks in the memory of a CUDA device and of its host, in pages that models share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_node.engine.arena import LINE_BYTES, Paging
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import StepPlan
from gpu_node.executors.cuda_marks import mark
from gpu_node.executors.host_bytes import as_tensor
from gpu_node.kernels.triton.blocks import copy_blocks, gather_blocks, scatter_blocks
from gpu_node.kernels.triton.cache import Places

_WORD_BYTES = 8


class CudaArena:
    """Both memories. What is queued here comes behind what was queued before, like every launch."""

    def __init__(self, device_paging: Paging, host_paging: Paging, device: torch.device) -> None:
        self.device = device
        self._page_lines = device_paging.page_bytes // LINE_BYTES
        self._host_page_lines = host_paging.page_bytes // LINE_BYTES
        num_words = LINE_BYTES // _WORD_BYTES
        self._words = torch.empty(
            device_paging.num_pages * self._page_lines * num_words, dtype=torch.int64, device=device
        )
        # what is pinned goes over without the processor, in the order of the queue
        self._host_words = torch.empty(
            host_paging.num_pages * self._host_page_lines * num_words,
            dtype=torch.int64,
            pin_memory=device.type == "cuda" and host_paging.page_bytes > 0,
        )

    def numbers(self, dtype: torch.dtype) -> torch.Tensor:
        """All of the device's, [numbers]."""
        return self._words.view(dtype)

    def places(self, model: LoadedModel) -> Places:
        """Where a model's blocks begin on the device."""
        return Places(self._page_lines, model.block_bytes // LINE_BYTES)

    def move(self, model: LoadedModel, plan: StepPlan) -> None:
        """Queue a step's swaps out, then its copies as if at the same time, then its swaps in.

        A block is one piece, large enough for a transfer of its own.
        """
        for swap in plan.swaps_out:
            self._host_block(model, swap.host_block).copy_(self._block(model, swap.device_block), non_blocking=True)
        if plan.copies:
            sources = self._lines(model, [copy.source for copy in plan.copies])
            destinations = self._lines(model, [copy.destination for copy in plan.copies])
            copy_blocks(self._words, sources, destinations, model.block_bytes // LINE_BYTES)
        for swap in plan.swaps_in:
            self._block(model, swap.device_block).copy_(self._host_block(model, swap.host_block), non_blocking=True)

    def read(self, model: LoadedModel, blocks: Sequence[int], *, swapped_out: bool) -> memoryview:
        """The content of blocks, one behind the other; waits for all that was queued."""
        content = bytearray(len(blocks) * model.block_bytes)
        rows = as_tensor(content, torch.int64).view(len(blocks), model.block_bytes // _WORD_BYTES)
        if swapped_out:
            mark(self.device).wait()  # swaps to the host may still be on their way
            for row, block in zip(rows, blocks, strict=True):
                row.copy_(self._host_block(model, block))
        else:
            staging = torch.empty_like(rows, device=self.device)
            gather_blocks(self._words, self._lines(model, blocks), staging)
            rows.copy_(staging)
        return memoryview(content)

    def write(self, model: LoadedModel, blocks: Sequence[int], content: memoryview) -> None:
        """Put what was read into blocks of the device."""
        rows = as_tensor(bytearray(content), torch.int64).view(len(blocks), model.block_bytes // _WORD_BYTES)
        scatter_blocks(rows.to(self.device), self._lines(model, blocks), self._words)

    def _lines(self, model: LoadedModel, blocks: Sequence[int]) -> torch.Tensor:
        places = self.places(model)
        return torch.tensor([places.line(block) for block in blocks], dtype=torch.int32).to(self.device)

    def _block(self, model: LoadedModel, block: int) -> torch.Tensor:
        return self._words[_words_of(self.places(model), block)]

    def _host_block(self, model: LoadedModel, block: int) -> torch.Tensor:
        return self._host_words[_words_of(Places(self._host_page_lines, model.block_bytes // LINE_BYTES), block)]


def _words_of(places: Places, block: int) -> slice:
    first, num_words = places.line(block), LINE_BYTES // _WORD_BYTES
    return slice(first * num_words, (first + places.block_lines) * num_words)
