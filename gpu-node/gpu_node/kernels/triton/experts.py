"""A mixture of experts as grouped products: each expert's own rows, gathered as they are read (MegaBlocks, MLSys'23).

Nothing depends on how many rows an expert got but numbers in the device's memory: the grid is the most tiles there can
be, so a CUDA graph can replay it. A tile finds its expert in the sums of the counts before it. Rows come together again
in the order of experts, not by atomic additions: the same row gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.activations import silu
from gpu_node.kernels.triton.launch import INTERPRETED, MIN_DOT, check_rows, check_whole, dot, launch, padded, require

MAX_TILE_ROWS = 64
TILE_COLUMNS = 64
TILE_INPUTS = 64
CHUNK_ROWS = 128
"""Rows that are looked at together for the chosen experts."""


@triton.jit(do_not_specialize=["num_rows"])
def _choose(routing, routing_stride, rows_of, place_of, counts, num_rows, num_experts, CHUNK: tl.constexpr):
    """List the rows of one expert, and where in the list each row is."""
    expert = tl.program_id(0)
    count = 0
    for first in range(0, num_rows, CHUNK):
        rows = first + tl.arange(0, CHUNK)
        here = rows < num_rows
        share = tl.load(routing + rows.to(tl.int64) * routing_stride + expert, mask=here, other=0.0)
        is_chosen = here & (share != 0.0)
        places = count + tl.cumsum(is_chosen.to(tl.int32), 0) - 1
        tl.store(rows_of + expert.to(tl.int64) * num_rows + places, rows, mask=is_chosen)
        tl.store(place_of + rows.to(tl.int64) * num_experts + expert, places, mask=is_chosen)
        count += tl.sum(is_chosen.to(tl.int32), 0)
    tl.store(counts + expert, count)


@triton.jit
def _expert_of(tile, counts, num_experts, TILE_ROWS: tl.constexpr, PADDED_EXPERTS: tl.constexpr):
    """Of a tile: its expert (``num_experts`` behind the last tile), the first of its places there, how many rows the
    expert has, and the slot of its first one."""
    experts = tl.arange(0, PADDED_EXPERTS)
    num_rows = tl.load(counts + experts, mask=experts < num_experts, other=0)
    num_tiles = tl.cdiv(num_rows, TILE_ROWS)
    ends = tl.cumsum(num_tiles, 0)
    expert = tl.sum(((ends <= tile) & (experts < num_experts)).to(tl.int32), 0)
    is_own = experts == expert
    place = (tile - tl.sum(tl.where(is_own, ends - num_tiles, 0), 0)) * TILE_ROWS
    slot = tl.sum(tl.where(experts < expert, num_rows, 0), 0)
    return expert, place, tl.sum(tl.where(is_own, num_rows, 0), 0), slot


@triton.jit(do_not_specialize=["num_rows"])
def _gates(
    x,
    gate,
    up,
    hidden,
    rows_of,
    counts,
    x_stride,
    num_rows,
    num_experts,
    inner,
    num_columns,
    TILE_ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PADDED_EXPERTS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    expert, place, count, slot = _expert_of(tl.program_id(0), counts, num_experts, TILE_ROWS, PADDED_EXPERTS)
    if expert < num_experts:
        places = place + tl.arange(0, TILE_ROWS)
        is_row = places < count
        rows = tl.load(rows_of + expert.to(tl.int64) * num_rows + places, mask=is_row, other=0).to(tl.int64)
        outputs = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
        is_output = outputs < inner
        weights = (expert.to(tl.int64) * inner + outputs) * num_columns
        gates = tl.zeros([TILE_ROWS, TILE_N], tl.float32)
        ups = tl.zeros([TILE_ROWS, TILE_N], tl.float32)
        for first in range(0, num_columns, TILE_K):
            inputs = first + tl.arange(0, TILE_K)
            is_input = inputs < num_columns
            part = tl.load(
                x + rows[:, None] * x_stride + inputs[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0
            )
            mask = is_input[:, None] & is_output[None, :]
            gates += dot(part, tl.load(gate + weights[None, :] + inputs[:, None], mask=mask, other=0.0), WIDEN)
            ups += dot(part, tl.load(up + weights[None, :] + inputs[:, None], mask=mask, other=0.0), WIDEN)
        at = (slot + places).to(tl.int64)[:, None] * inner + outputs[None, :]
        tl.store(
            hidden + at, (silu(gates) * ups).to(hidden.dtype.element_ty), mask=is_row[:, None] & is_output[None, :]
        )


@triton.jit
def _outputs(
    hidden,
    down,
    results,
    counts,
    num_experts,
    inner,
    num_columns,
    TILE_ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PADDED_EXPERTS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    expert, place, count, slot = _expert_of(tl.program_id(0), counts, num_experts, TILE_ROWS, PADDED_EXPERTS)
    if expert < num_experts:
        places = place + tl.arange(0, TILE_ROWS)
        is_row = places < count
        slots = (slot + places).to(tl.int64)
        outputs = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
        is_output = outputs < num_columns
        weights = (expert.to(tl.int64) * num_columns + outputs) * inner
        total = tl.zeros([TILE_ROWS, TILE_N], tl.float32)
        for first in range(0, inner, TILE_K):
            inputs = first + tl.arange(0, TILE_K)
            is_input = inputs < inner
            part = tl.load(
                hidden + slots[:, None] * inner + inputs[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0
            )
            mask = is_input[:, None] & is_output[None, :]
            total += dot(part, tl.load(down + weights[None, :] + inputs[:, None], mask=mask, other=0.0), WIDEN)
        at = slots[:, None] * num_columns + outputs[None, :]
        tl.store(results + at, total, mask=is_row[:, None] & is_output[None, :])


@triton.jit
def _add_up(
    results,
    routing,
    place_of,
    counts,
    out,
    routing_stride,
    out_stride,
    num_experts,
    num_columns,
    NUM_CHOSEN: tl.constexpr,
    TILE: tl.constexpr,
    PADDED_EXPERTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    experts = tl.arange(0, PADDED_EXPERTS)
    is_expert = experts < num_experts
    shares = tl.load(routing + row * routing_stride + experts, mask=is_expert, other=0.0)
    num_rows = tl.load(counts + experts, mask=is_expert, other=0)
    slots = tl.cumsum(num_rows, 0) - num_rows
    is_chosen = shares != 0.0
    slots += tl.load(place_of + row * num_experts + experts, mask=is_chosen, other=0)
    number = tl.cumsum(is_chosen.to(tl.int32), 0) - 1
    total = tl.zeros([TILE], tl.float32)
    for i in tl.static_range(NUM_CHOSEN):
        is_next = is_chosen & (number == i)
        slot = tl.sum(tl.where(is_next, slots, 0), 0).to(tl.int64)
        share = tl.sum(tl.where(is_next, shares, 0.0), 0)
        is_there = tl.sum(is_next.to(tl.int32), 0) > 0
        total += share * tl.load(results + slot * num_columns + columns, mask=here & is_there, other=0.0)
    tl.store(out + row * out_stride + columns, total.to(out.dtype.element_ty), mask=here)


def experts(
    x: torch.Tensor,
    routing: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    num_chosen: int,
    out: torch.Tensor,
) -> None:
    """Gated networks, each over the rows of ``x`` [rows, columns] where its share is not 0, and their weighted sum.

    ``routing`` float32 [rows, experts], at most ``num_chosen`` of a row not 0; ``gate`` and ``up`` [experts, inner,
    columns]; ``down`` [experts, columns, inner], all three of one type.
    """
    _check(x, routing, gate, up, down, num_chosen, out)
    num_rows, num_columns = x.shape
    num_experts, inner = gate.shape[:2]
    if num_rows == 0:
        return
    rows_of = routing.new_empty((num_experts, num_rows), dtype=torch.int32)
    place_of = routing.new_empty((num_rows, num_experts), dtype=torch.int32)
    counts = routing.new_empty(num_experts, dtype=torch.int32)
    launch(
        _choose,
        (num_experts,),
        routing,
        routing.stride(0),
        rows_of,
        place_of,
        counts,
        num_rows,
        num_experts,
        CHUNK=CHUNK_ROWS,
    )
    num_slots = num_rows * num_chosen
    hidden = x.new_empty((num_slots, inner))
    results = x.new_empty((num_slots, num_columns), dtype=torch.float32)
    tile_rows = min(MAX_TILE_ROWS, padded(triton.cdiv(num_slots, num_experts), MIN_DOT))
    num_tiles = num_slots // tile_rows + min(num_slots, num_experts)
    sizes = {
        "TILE_ROWS": tile_rows,
        "TILE_N": TILE_COLUMNS,
        "TILE_K": TILE_INPUTS,
        "PADDED_EXPERTS": padded(num_experts),
        "WIDEN": INTERPRETED,
    }
    launch(
        _gates,
        (num_tiles, triton.cdiv(inner, TILE_COLUMNS)),
        x,
        gate,
        up,
        hidden,
        rows_of,
        counts,
        x.stride(0),
        num_rows,
        num_experts,
        inner,
        num_columns,
        **sizes,
    )
    launch(
        _outputs,
        (num_tiles, triton.cdiv(num_columns, TILE_COLUMNS)),
        hidden,
        down,
        results,
        counts,
        num_experts,
        inner,
        num_columns,
        **sizes,
    )
    tile = min(1024, padded(num_columns))
    launch(
        _add_up,
        (num_rows, triton.cdiv(num_columns, tile)),
        results,
        routing,
        place_of,
        counts,
        out,
        routing.stride(0),
        out.stride(0),
        num_experts,
        num_columns,
        NUM_CHOSEN=num_chosen,
        TILE=tile,
        PADDED_EXPERTS=padded(num_experts),
    )


def _check(
    x: torch.Tensor,
    routing: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    num_chosen: int,
    out: torch.Tensor,
) -> None:
    check_rows(x, routing, out)
    check_whole(gate, up, down)
    num_rows, num_columns = x.shape
    num_experts, inner = gate.shape[:2]
    require(routing.shape == (num_rows, num_experts), "experts: a share of each expert in each row", routing)
    require(routing.dtype == torch.float32, "experts: shares are float32", routing)
    require(gate.shape == up.shape == (num_experts, inner, num_columns), "experts: gate and up differ in shape", up)
    require(down.shape == (num_experts, num_columns, inner), "experts: down leads back to the columns", down)
    require(x.shape == out.shape, "experts: x and out have one shape")
    require(x.dtype == gate.dtype == up.dtype == down.dtype, "experts: x and the weights have one type", x)
    require(0 < num_chosen <= num_experts, "experts: a row goes to one at least, and to no more than there are")
