"""Blocks that move: copies within an arena, and to and from contiguous memory that one transfer takes to the host.

A transfer of many small pieces is bound by how many they are: blocks are first gathered into a staging buffer, which
goes over in one piece, and scattered behind it (PagedAttention, §4.5 and §5.1).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_whole, launch, require
from shared.files.kv_paging import LINE_BYTES

_WORDS = LINE_BYTES // 8
TILE_WORDS = 1024


@triton.jit
def _move(arena, staging, lines, block_words, LINE_WORDS: tl.constexpr, GATHERS: tl.constexpr, TILE: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    words = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = words < block_words
    there = arena + tl.load(lines + block).to(tl.int64) * LINE_WORDS + words
    staged = staging + block * block_words + words
    if GATHERS:
        tl.store(staged, tl.load(there, mask=here), mask=here)
    else:
        tl.store(there, tl.load(staged, mask=here), mask=here)


def gather_blocks(arena: torch.Tensor, lines: torch.Tensor, staging: torch.Tensor) -> None:
    """Copy the blocks that begin at ``lines`` (int32 [blocks]) of ``arena`` into ``staging``, one behind the other.

    Both are int64 words, ``staging`` [blocks, words of a block]: whole lines.
    """
    _launch(arena, lines, staging, gathers=True)


def scatter_blocks(staging: torch.Tensor, lines: torch.Tensor, arena: torch.Tensor) -> None:
    """Copy blocks that lie one behind the other to where they begin in ``arena``; see `gather_blocks`."""
    _launch(arena, lines, staging, gathers=False)


def copy_blocks(arena: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor, block_lines: int) -> None:
    """Copy blocks of ``block_lines`` lines within an arena: all sources are read before any destination is written."""
    require(sources.shape == destinations.shape, "copy_blocks: a destination for each source")
    staging = arena.new_empty((len(sources), block_lines * _WORDS))
    gather_blocks(arena, sources, staging)
    scatter_blocks(staging, destinations, arena)


def _launch(arena: torch.Tensor, lines: torch.Tensor, staging: torch.Tensor, *, gathers: bool) -> None:
    check_whole(arena, lines, staging)
    require(arena.dtype == staging.dtype == torch.int64, "blocks move as int64 words", staging)
    require(lines.dtype == torch.int32 and lines.dim() == 1, "lines are int32 [blocks]", lines)
    require(staging.dim() == 2 and len(staging) == len(lines), "staging has room for each block", staging)
    block_words = staging.shape[1]
    require(block_words % _WORDS == 0, "a block is whole lines", staging)
    launch(
        _move,
        (len(lines), triton.cdiv(block_words, TILE_WORDS)),
        arena,
        staging,
        lines,
        block_words,
        LINE_WORDS=_WORDS,
        GATHERS=gathers,
        TILE=TILE_WORDS,
    )
