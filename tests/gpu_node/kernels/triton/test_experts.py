"""Routing and grouped products against the reference in float64."""

from __future__ import annotations

import pytest
import torch

from gpu_node.kernels import reference
from gpu_node.kernels.triton.experts import CHUNK_ROWS, experts
from gpu_node.kernels.triton.launch import INTERPRETED
from gpu_node.kernels.triton.route import route
from tests.gpu_node.kernels.triton.buffers import DEVICE, ERRORS, FLOAT32_ERROR, TYPES, Buffer, error, numbers, wide

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")


@pytest.mark.parametrize("num_rows", [0, 1, 5])
@pytest.mark.parametrize(("num_experts", "num_chosen"), [(1, 1), (4, 2), (7, 7)])
def test_route(num_rows: int, num_experts: int, num_chosen: int) -> None:
    x, out = Buffer.of(numbers(num_rows, num_experts)), Buffer(num_rows, num_experts)
    route(x.view, num_chosen, out.view)
    assert error(out.written(), reference.route(x.written(), num_chosen)) < FLOAT32_ERROR


def test_equals_are_chosen_in_order_and_whoever_underflows_stays_chosen() -> None:
    x = Buffer.of(torch.tensor([[1.0, 2.0, 2.0, 2.0], [0.0, 500.0, -500.0, -600.0]], device=DEVICE))
    out = Buffer(2, 4)
    route(x.view, 2, out.view)
    assert out.written()[0].tolist() == [0, 0.5, 0.5, 0]
    assert (out.written()[1] > 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("num_rows", "num_experts", "num_chosen", "columns", "inner"),
    [(0, 2, 1, 4, 4), (1, 4, 2, 6, 5), (9, 3, 1, 70, 66), (40, 2, 2, 8, 12), (3, 9, 3, 5, 4)],
)
def test_rows_go_through_the_experts_chosen_for_them(
    dtype: torch.dtype, num_rows: int, num_experts: int, num_chosen: int, columns: int, inner: int
) -> None:
    torch.manual_seed(num_rows)
    x = Buffer.of(numbers(num_rows, columns, dtype=dtype))
    routing = reference.route(numbers(num_rows, num_experts).cpu(), num_chosen).to(DEVICE)
    gate, up = numbers(2, num_experts, inner, columns, dtype=dtype)
    down = numbers(num_experts, columns, inner, dtype=dtype)
    out = Buffer(num_rows, columns, dtype)
    experts(x.view, Buffer.of(routing).view, gate, up, down, num_chosen, out.view)
    expected = reference.experts(x.written(), wide(routing), wide(gate), wide(up), wide(down))
    assert error(out.written(), expected) < 2 * ERRORS[dtype]


def test_an_expert_that_all_rows_go_to_takes_many_tiles_and_the_others_none() -> None:
    torch.manual_seed(1)
    num_rows = CHUNK_ROWS + 1
    x, gate, up, down = numbers(num_rows, 4), numbers(3, 5, 4), numbers(3, 5, 4), numbers(3, 4, 5)
    routing = torch.tensor([[0.0, 1.0, 0.0]], device=DEVICE).repeat(num_rows, 1)
    out = Buffer(num_rows, 4)
    experts(x, routing, gate, up, down, 1, out.view)
    expected = reference.experts(wide(x), wide(routing), wide(gate), wide(up), wide(down))
    assert error(out.written(), expected) < FLOAT32_ERROR


def test_a_row_is_the_same_bits_whatever_else_is_in_the_batch() -> None:
    torch.manual_seed(2)
    x, gate, up, down = numbers(20, 6), numbers(3, 5, 6), numbers(3, 5, 6), numbers(3, 6, 5)
    routing = reference.route(numbers(20, 3).cpu(), 2).to(DEVICE)
    together = Buffer(20, 6)
    experts(x, routing, gate, up, down, 2, together.view)
    for rows in (slice(0, 1), slice(7, 12)):
        alone = Buffer(rows.stop - rows.start, 6)
        experts(x[rows], routing[rows], gate, up, down, 2, alone.view)
        if INTERPRETED:  # whose products are numpy's, and hang on the row's place in a tile
            assert error(alone.written(), together.written()[rows]) < FLOAT32_ERROR
        else:
            assert alone.written().equal(together.written()[rows])


def test_what_does_not_fit_is_refused() -> None:
    x, shares, weights = numbers(2, 3), numbers(2, 4), numbers(4, 5, 3)
    down = numbers(4, 3, 5)
    with pytest.raises(ValueError, match="no more than there are"):
        route(x, 4, x)
    with pytest.raises(ValueError, match="a share of each expert"):
        experts(x, x, weights, weights, down, 1, x)
    with pytest.raises(ValueError, match="leads back"):
        experts(x, shares, weights, weights, weights, 1, x)
    with pytest.raises(ValueError, match="one type"):
        experts(x.bfloat16(), shares, weights, weights, down, 1, x.bfloat16())
