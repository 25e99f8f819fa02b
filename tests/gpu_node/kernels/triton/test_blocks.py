"""Blocks move whole, and nothing else does."""

from __future__ import annotations

import pytest
import torch

from gpu_node.kernels.triton.blocks import copy_blocks, gather_blocks, scatter_blocks
from tests.gpu_node.kernels.triton.buffers import DEVICE

WORDS = 8  # of a line


def arena(num_lines: int) -> torch.Tensor:
    """Each word another."""
    return torch.arange(num_lines * WORDS, dtype=torch.int64, device=DEVICE)


def lines(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def first_words(memory: torch.Tensor) -> list[int]:
    """By what it holds, where each line comes from."""
    words = memory.view(-1, WORDS)
    assert (words - words[:, :1]).equal(torch.arange(WORDS, device=DEVICE).repeat(len(words), 1))
    return [word // WORDS for word in words[:, 0].tolist()]


def test_all_sources_are_read_before_any_destination_is_written() -> None:
    memory = arena(8)
    copy_blocks(memory, lines(0, 2, 5), lines(2, 0, 6), block_lines=2)
    assert first_words(memory) == [2, 3, 0, 1, 4, 5, 5, 6]
    copy_blocks(memory, lines(), lines(), block_lines=2)
    assert first_words(memory) == [2, 3, 0, 1, 4, 5, 5, 6]


@pytest.mark.parametrize("block_lines", [1, 3, 130])  # 130 lines are more than one tile
def test_blocks_go_to_contiguous_memory_and_back(block_lines: int) -> None:
    memory = arena(5 * block_lines)
    staging = torch.full((2, block_lines * WORDS), -1, dtype=torch.int64, device=DEVICE)
    gather_blocks(memory, lines(3 * block_lines, 0), staging)
    assert first_words(staging) == [*range(3 * block_lines, 4 * block_lines), *range(block_lines)]
    scatter_blocks(staging, lines(block_lines, 4 * block_lines), memory)
    moved = first_words(memory)
    assert moved[block_lines : 2 * block_lines] == list(range(3 * block_lines, 4 * block_lines))
    assert moved[4 * block_lines :] == list(range(block_lines))
    assert moved[:block_lines] == list(range(block_lines))
    assert moved[2 * block_lines : 4 * block_lines] == list(range(2 * block_lines, 4 * block_lines))


def test_what_does_not_fit_is_refused() -> None:
    memory, staging = arena(4), torch.zeros(1, WORDS, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="int64 words"):
        gather_blocks(memory.double(), lines(0), staging)
    with pytest.raises(ValueError, match="room for each block"):
        gather_blocks(memory, lines(0, 1), staging)
    with pytest.raises(ValueError, match="whole lines"):
        scatter_blocks(staging[:, :3].contiguous(), lines(0), memory)
    with pytest.raises(ValueError, match="a destination for each"):
        copy_blocks(memory, lines(0), lines(1, 2), 1)
