"""Memory for KV blocks, of a CUDA device or of its host, in pages that models share."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from gpu_node.engine.border.model import LoadedModel
from gpu_node.kernels.triton.cache import Places
from shared.files.kv_paging import LINE_BYTES, Paging

WORD_BYTES = 8
"""Content moves as int64 words."""
_LINE_WORDS = LINE_BYTES // WORD_BYTES


class CudaArena:
    """One memory. Holds nothing that has a meaning until it is written."""

    def __init__(self, paging: Paging, device: torch.device, *, is_pinned: bool = False) -> None:
        """``is_pinned``: host memory that the CUDA device here reaches by itself, in the order of a queue."""
        self.page_lines = paging.page_bytes // LINE_BYTES
        self.words = torch.empty(paging.num_pages * self.page_lines * _LINE_WORDS, dtype=torch.int64, device=device)
        """int64 [words]: all of it."""
        if is_pinned and self.words.nbytes:
            # torch's own pinned memory comes in powers of two: too much of it for the largest memory that there is
            lock_pages(self.words)
            weakref.finalize(self, unlock_pages, self.words)

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return self.words.nbytes

    def numbers(self, dtype: torch.dtype) -> torch.Tensor:
        """All of it, [numbers]."""
        return self.words.view(dtype)

    def places(self, model: LoadedModel) -> Places:
        """Where a model's blocks begin."""
        return Places(self.page_lines, model.block_bytes // LINE_BYTES)

    def runs(self, model: LoadedModel, blocks: Sequence[int]) -> list[torch.Tensor]:
        """The blocks in their order, int64 [blocks, words of a block] each: those that lie side by side are one."""
        places = self.places(model)
        runs: list[list[int]] = []  # the first line, and the number of blocks
        for block in blocks:
            line = places.line(block)
            if runs and line == runs[-1][0] + runs[-1][1] * places.block_lines:
                runs[-1][1] += 1
            else:
                runs.append([line, 1])
        num_words = places.block_lines * _LINE_WORDS
        return [
            self.words.narrow(0, line * _LINE_WORDS, num_blocks * num_words).view(num_blocks, num_words)
            for line, num_blocks in runs
        ]


def lock_pages(memory: torch.Tensor) -> None:
    """Make host memory such that a CUDA device copies to and from it by itself."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))


def unlock_pages(memory: torch.Tensor) -> None:
    """Make it plain memory again."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostUnregister(memory.data_ptr()))
