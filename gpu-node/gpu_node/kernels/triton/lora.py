"""What adapters add to a product: of each row, x times two matrices of low rank, those of the row's adapter.

(LoRA: Hu et al., ICLR'22, §4.1; rows of several adapters in one launch: Punica, Chen et al., MLSys'24, §4.) A tile of
rows takes one adapter after the other, with zeros in the place of rows that are another's: these add nothing, so a
row's bits do not depend on whose rows are beside it. Inputs are cut into pieces that are summed in their order, so that
a single row is work for several processors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, check_rows, check_whole, dot, launch, padded, require

TILE_ROWS = 16
TILE_INPUTS = 64
PIECE_INPUTS = 512
"""Inputs that one program takes."""
TILE_OUTPUTS = 128
TILE_BYTES = 16 << 10
"""Of a matrix that a program has in shared memory at a time, of which several are under way: smaller tiles for large
ranks."""
MAX_NUMBERS = 1 << 31
"""Of all adapters' matrices for a product, which kernels count in 32 bits."""


@triton.jit
def _adapters_of(rows, num_rows, adapters, draw_rows, BY_DRAW: tl.constexpr):
    here = rows < num_rows
    of_step = tl.load(draw_rows + rows, mask=here, other=0) if BY_DRAW else rows
    return tl.load(adapters + of_step, mask=here, other=-1)


@triton.jit(do_not_specialize=["num_rows"])
def _shrink(
    x,
    a,
    sums,
    adapters,
    draw_rows,
    x_stride,
    num_rows,
    num_adapters,
    rank,
    num_inputs,
    BY_DRAW: tl.constexpr,
    ROWS: tl.constexpr,
    RANK: tl.constexpr,
    PIECE: tl.constexpr,
    TILE: tl.constexpr,
    WIDEN: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = _adapters_of(rows, num_rows, adapters, draw_rows, BY_DRAW)
    ranks = tl.arange(0, RANK)
    first_input = tl.program_id(1) * PIECE
    if tl.max(own, 0) >= 0:
        total = tl.zeros([ROWS, RANK], tl.float32)
        for adapter in range(num_adapters):
            is_own = own == adapter
            if tl.max(is_own.to(tl.int32), 0) > 0:
                matrix = a + (adapter * rank + ranks) * num_inputs
                for first in range(0, PIECE, TILE):
                    inputs = first_input + first + tl.arange(0, TILE)
                    is_input = inputs < num_inputs
                    part = tl.load(
                        x + rows.to(tl.int64)[:, None] * x_stride + inputs[None, :],
                        mask=is_own[:, None] & is_input[None, :],
                        other=0.0,
                    )
                    mask = is_input[:, None] & (ranks < rank)[None, :]
                    total += dot(part, tl.load(matrix[None, :] + inputs[:, None], mask=mask, other=0.0), WIDEN)
        at = (tl.program_id(1) * num_rows + rows) * RANK
        tl.store(sums + at[:, None] + ranks[None, :], total, mask=(own >= 0)[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def _expand(
    sums,
    b,
    out,
    adapters,
    draw_rows,
    out_stride,
    num_rows,
    num_adapters,
    rank,
    num_outputs,
    num_pieces,
    BY_DRAW: tl.constexpr,
    ROWS: tl.constexpr,
    RANK: tl.constexpr,
    TILE: tl.constexpr,
    WIDEN: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = _adapters_of(rows, num_rows, adapters, draw_rows, BY_DRAW)
    ranks = tl.arange(0, RANK)
    outputs = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_output = outputs < num_outputs
    if tl.max(own, 0) >= 0:
        shrunk = tl.zeros([ROWS, RANK], tl.float32)
        for piece in range(num_pieces):
            at = (piece * num_rows + rows) * RANK
            shrunk += tl.load(sums + at[:, None] + ranks[None, :], mask=(own >= 0)[:, None], other=0.0)
        total = tl.zeros([ROWS, TILE], tl.float32)
        for adapter in range(num_adapters):
            is_own = own == adapter
            if tl.max(is_own.to(tl.int32), 0) > 0:
                part = tl.where(is_own[:, None], shrunk, 0.0).to(b.dtype.element_ty)
                matrix = b + (adapter * num_outputs + outputs) * rank
                mask = (ranks < rank)[:, None] & is_output[None, :]
                total += dot(part, tl.load(matrix[None, :] + ranks[:, None], mask=mask, other=0.0), WIDEN)
        places = out + rows.to(tl.int64)[:, None] * out_stride + outputs[None, :]
        mask = (own >= 0)[:, None] & is_output[None, :]
        before = tl.load(places, mask=mask, other=0.0).to(tl.float32)
        tl.store(places, (before + total).to(out.dtype.element_ty), mask=mask)


def num_pieces(num_inputs: int) -> int:
    """Into which the inputs of a product are cut."""
    return -(-num_inputs // PIECE_INPUTS)


def _tile(most: int, rank: int, number_bytes: int) -> int:
    """Inputs or outputs of a matrix of that rank, padded, that a program takes at a time: a power of two."""
    return max(MIN_DOT, min(most, TILE_BYTES // (rank * number_bytes)))


def lora(
    x: torch.Tensor,
    shrink: torch.Tensor,
    expand: torch.Tensor,
    adapters: torch.Tensor,
    draw_rows: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Add to ``out`` [rows, outputs] what each row's adapter makes of ``x`` [rows, inputs].

    ``shrink`` [adapters, rank, inputs], ``expand`` [adapters, outputs, rank] with their scales, of one type with ``x``.
    ``adapters`` int32: of row i the one at i, or at the i-th of ``draw_rows`` int32 [rows]; below 0 for none.
    """
    check_rows(x, out)
    check_whole(shrink, expand, adapters)
    num_adapters, rank, num_inputs = shrink.shape
    num_rows, num_outputs = out.shape
    require(x.shape == (num_rows, num_inputs), "lora: a row of inputs for each of outputs", x)
    require(expand.shape == (num_adapters, num_outputs, rank), "lora: matrices of other adapters, or ranks", expand)
    require(x.dtype == shrink.dtype == expand.dtype, "lora: x and the matrices have one type", x)
    require(adapters.dtype == torch.int32, "lora: adapters are int32", adapters)
    require(max(shrink.numel(), expand.numel()) < MAX_NUMBERS, "lora: matrices are counted in 32 bits", shrink)
    pieces, columns = num_pieces(num_inputs), max(MIN_DOT, padded(rank))
    sums = x.new_empty((pieces, num_rows, columns), dtype=torch.float32)
    rows = adapters if draw_rows is None else draw_rows
    kinds = {"BY_DRAW": draw_rows is not None, "ROWS": TILE_ROWS, "RANK": columns, "WIDEN": INTERPRETED}
    num_tiles = triton.cdiv(num_rows, TILE_ROWS)
    outputs = _tile(TILE_OUTPUTS, columns, x.element_size())
    launch(
        _shrink,
        (num_tiles, pieces),
        x,
        shrink,
        sums,
        adapters,
        rows,
        x.stride(0),
        num_rows,
        num_adapters,
        rank,
        num_inputs,
        PIECE=PIECE_INPUTS,
        TILE=_tile(TILE_INPUTS, columns, x.element_size()),
        **kinds,
    )
    launch(
        _expand,
        (num_tiles, triton.cdiv(num_outputs, outputs)),
        sums,
        expand,
        out,
        adapters,
        rows,
        out.stride(0),
        num_rows,
        num_adapters,
        rank,
        num_outputs,
        pieces,
        TILE=outputs,
        **kinds,
    )
