"""Rows of a table: embeddings by token or position, angles by position."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_rows, check_whole, launch, padded, require

MAX_TILE = 1024
"""Columns of a row that one program copies."""


@triton.jit
def _lookup(table, indices, cells, out, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    index = tl.load(indices + row)
    index = tl.where(index < 0, tl.load(cells - 1 - index, mask=index < 0, other=0), index).to(tl.int64)
    values = tl.load(table + index * num_columns + columns, mask=here, other=0.0)
    tl.store(out + row * out_stride + columns, values.to(out.dtype.element_ty), mask=here)


def lookup(table: torch.Tensor, indices: torch.Tensor, cells: torch.Tensor, out: torch.Tensor) -> None:
    """Rows ``indices`` int32 [rows] of ``table`` [size, columns] → ``out`` [rows, columns].

    An index below 0 is the mark of a cell (`gpu_node.kernels.token_draw.cell_mark`): ``cells`` int32 have it by then.
    """
    check_rows(table, out)
    check_whole(table, indices, cells)
    require(indices.dtype == cells.dtype == torch.int32, "lookup: indices and cells are int32", indices)
    require(out.shape == (len(indices), table.shape[1]), "lookup: a row of the table for each index", out)
    num_columns = table.shape[1]
    tile = min(MAX_TILE, padded(num_columns))
    grid = (len(indices), triton.cdiv(num_columns, tile))
    launch(_lookup, grid, table, indices, cells, out, out.stride(0), num_columns, TILE=tile)
