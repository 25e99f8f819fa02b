"""What encoders read of all rows of a text: which segment a row is of, the text's first row, the mean of its rows.

A text begins at position 0 and all of it is in the step, so its first row is as far before any of its rows as that
row's position says.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_rows, check_whole, launch, padded, require

MAX_TILE = 1024
"""Columns of a row that one program writes."""
TOKEN_TILE = 128
"""Token ids that it looks through at a time."""


@triton.jit
def _segment_embedding(
    table,
    token_ids,
    positions,
    out,
    first_row,
    separator,
    out_stride,
    num_columns,
    TILE: tl.constexpr,
    TOKENS: tl.constexpr,
):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    own = first_row + row
    num_before = tl.load(positions + own)
    num_found = 0
    for first in range(0, num_before, TOKENS):
        token = first + tl.arange(0, TOKENS)
        ids = tl.load(token_ids + own - num_before + token, mask=token < num_before, other=-1)
        num_found += tl.sum(((ids == separator) & (token < num_before)).to(tl.int32), 0)
    segment = tl.minimum(num_found, 1).to(tl.int64)
    here = columns < num_columns
    values = tl.load(table + segment * num_columns + columns, mask=here, other=0.0)
    tl.store(out + row * out_stride + columns, values.to(out.dtype.element_ty), mask=here)


@triton.jit
def _select_first(x, positions, draw_rows, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    draw, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    last = tl.load(draw_rows + draw)
    first = x + (last - tl.load(positions + last)).to(tl.int64) * x_stride
    values = tl.load(first + columns, mask=here, other=0.0)
    tl.store(out + draw * out_stride + columns, values.to(out.dtype.element_ty), mask=here)


@triton.jit
def _mean_pool(x, positions, draw_rows, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    draw, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    last = tl.load(draw_rows + draw)
    num_rows = tl.load(positions + last) + 1
    first = x + (last - num_rows + 1).to(tl.int64) * x_stride
    sums = tl.zeros([TILE], tl.float32)
    for number in range(num_rows):
        sums += tl.load(first + number * x_stride + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(out + draw * out_stride + columns, (sums / num_rows).to(out.dtype.element_ty), mask=here)


def segment_embedding(
    table: torch.Tensor,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    first_row: int,
    separator: int,
    out: torch.Tensor,
) -> None:
    """Row 0 or 1 of ``table`` [segments, columns] → ``out`` [rows, columns]: 1 behind a text's first ``separator``.

    ``token_ids`` and ``positions`` int32 [rows of the step], of which those of ``out`` begin with ``first_row``; no id
    is the mark of a cell. ``separator`` -1: there is none.
    """
    check_rows(table, out)
    check_whole(table, token_ids, positions)
    require(token_ids.dtype == positions.dtype == torch.int32, "segment_embedding: ids and positions are int32")
    require(out.shape[1] == table.shape[1], "segment_embedding: as many columns as the table has", out)
    require(separator < 0 or len(table) > 1, "segment_embedding: two texts of a pair have a row each")
    require(first_row + len(out) <= len(token_ids) == len(positions), "segment_embedding: rows of the step", out)
    launch(
        _segment_embedding,
        _grid(out),
        table,
        token_ids,
        positions,
        out,
        first_row,
        separator,
        out.stride(0),
        out.shape[1],
        TILE=_tile(out),
        TOKENS=TOKEN_TILE,
    )


def select_first(x: torch.Tensor, positions: torch.Tensor, draw_rows: torch.Tensor, out: torch.Tensor) -> None:
    """The first row of each text that ends with one of ``draw_rows`` int32 [draws] → ``out`` [draws, columns].

    ``x`` [rows, columns] and ``positions`` int32 [rows] of the whole step.
    """
    _pool(_select_first, x, positions, draw_rows, out)


def mean_pool(x: torch.Tensor, positions: torch.Tensor, draw_rows: torch.Tensor, out: torch.Tensor) -> None:
    """The mean of each such text's rows, likewise. Sums are float32, row after row."""
    _pool(_mean_pool, x, positions, draw_rows, out)


def _pool(kernel: Any, x: torch.Tensor, positions: torch.Tensor, draw_rows: torch.Tensor, out: torch.Tensor) -> None:
    check_rows(x, out)
    check_whole(positions, draw_rows)
    require(positions.dtype == draw_rows.dtype == torch.int32, "a text's rows: positions and rows are int32")
    require(len(positions) == len(x), "a text's rows: a position for each row", x)
    require(out.shape == (len(draw_rows), x.shape[1]), "a text's rows: a row of as many columns for each draw", out)
    strides = x.stride(0), out.stride(0)
    launch(kernel, _grid(out), x, positions, draw_rows, out, *strides, x.shape[1], TILE=_tile(out))


def _tile(out: torch.Tensor) -> int:
    return min(MAX_TILE, padded(out.shape[1]))


def _grid(out: torch.Tensor) -> tuple[int, int]:
    return len(out), triton.cdiv(out.shape[1], _tile(out))
