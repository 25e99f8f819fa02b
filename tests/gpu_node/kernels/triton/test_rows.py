"""Kernels on rows, over columns of wider buffers, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gpu_node.kernels import reference
from gpu_node.kernels.token_draw import cell_mark
from gpu_node.kernels.triton import activations, norms
from gpu_node.kernels.triton.lookup import lookup
from gpu_node.kernels.triton.rope import rope
from tests.gpu_node.kernels.triton.buffers import DEVICE, ERRORS, TYPES, Buffer, error, numbers, wide

EPSILON = 1e-5

# e ** x is infinite for a device without a word; the interpreter's numpy warns
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (3, 24), (2, 129)])
def test_norms(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x = Buffer.of(numbers(*shape, dtype=dtype) + 2)
    weight, bias = numbers(2, shape[1], dtype=dtype)
    out = Buffer(*shape, dtype)
    norms.rms_norm(x.view, weight, EPSILON, out.view)
    assert error(out.written(), reference.rms_norm(x.written(), wide(weight), EPSILON)) < ERRORS[dtype]
    norms.layer_norm(x.view, weight, bias, EPSILON, out.view)
    expected = reference.layer_norm(x.written(), wide(weight), wide(bias), EPSILON)
    assert error(out.written(), expected) < ERRORS[dtype]


@pytest.mark.parametrize("num_columns", [1, 5, 1030])
def test_rows_of_a_table_by_numbers_and_by_what_cells_hold(num_columns: int) -> None:
    table, out = numbers(7, num_columns), Buffer(4, num_columns)
    indices = torch.tensor([6, cell_mark(1), 0, cell_mark(0)], dtype=torch.int32, device=DEVICE)
    cells = torch.tensor([3, 5], dtype=torch.int32, device=DEVICE)
    lookup(table, indices, cells, out.view)
    assert out.written().equal(wide(table)[[6, 5, 0, 3]])
    lookup(table, indices[:0], cells, out.view[:0])
    with pytest.raises(ValueError, match="a row of the table for each index"):
        lookup(table, indices[:3], cells, out.view)


def test_each_head_is_normed_alone_and_in_place() -> None:
    x = Buffer.of(numbers(3, 4 * 10))
    weight = numbers(10)
    expected = reference.head_norm(x.written(), wide(weight), EPSILON)
    norms.head_norm(x.view, weight, EPSILON, x.view)
    assert error(x.written(), expected) < ERRORS[torch.float32]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_an_addition_joined_to_a_norm_changes_no_bit(dtype: torch.dtype) -> None:
    start, x = numbers(2, 3, 40, dtype=dtype)
    weight, bias = numbers(2, 40, dtype=dtype)
    total = start + x
    pairs: list[tuple[Callable[..., None], Callable[..., None], tuple[torch.Tensor, ...]]] = [
        (norms.rms_norm, norms.add_rms_norm, (weight,)),
        (norms.layer_norm, norms.add_layer_norm, (weight, bias)),
    ]
    for norm, joined, parameters in pairs:
        residual, ours, plain = Buffer.of(start), Buffer(3, 40, dtype), Buffer(3, 40, dtype)
        joined(residual.view, Buffer.of(x).view, *parameters, EPSILON, ours.view)
        assert error(residual.written(), wide(total)) <= (0 if dtype is torch.float32 else ERRORS[dtype])
        norm(residual.view, *parameters, EPSILON, plain.view)
        assert ours.written().equal(plain.written())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (3, 1100)])
def test_activations(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x, up = Buffer.of(numbers(*shape, dtype=dtype) * 3), Buffer.of(numbers(*shape, dtype=dtype))
    out = Buffer(*shape, dtype)
    activations.silu_mul(x.view, up.view, out.view)
    assert error(out.written(), reference.silu_mul(x.written(), up.written())) < ERRORS[dtype]
    activations.relu(x.view, out.view)
    assert out.written().equal(reference.relu(x.written()))
    activations.gelu(x.view, out.view)
    assert error(out.written(), reference.gelu(x.written())) < ERRORS[dtype]


@pytest.mark.parametrize("kernel", [activations.relu, activations.gelu])
def test_what_is_no_number_stays_none(kernel: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    x = Buffer.of(torch.tensor([[1.0, torch.nan, -1.0]], device=numbers(1).device))
    kernel(x.view, x.view)
    assert x.written().isnan().tolist() == [[False, True, False]]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("num_rows", "heads", "head_dim"), [(0, 2, 4), (1, 1, 2), (3, 3, 12)])
def test_rope(dtype: torch.dtype, num_rows: int, heads: int, head_dim: int) -> None:
    x = Buffer.of(numbers(num_rows, heads * head_dim, dtype=dtype))
    positions = torch.tensor([0, 5, 70])[:num_rows]
    angles = reference.rope_angles(positions, head_dim, 100.0).to(x.view.device)
    out = Buffer(num_rows, heads * head_dim, dtype)
    rope(x.view, angles, out.view)
    expected = reference.rope(x.written(), wide(angles))
    assert error(out.written(), expected) < ERRORS[dtype]
    rope(x.view, angles, x.view)
    assert x.written().equal(out.written())


def test_wrong_shapes_and_strides_are_said_at_the_entry() -> None:
    x = torch.zeros(3, 8, device=numbers(1).device)
    with pytest.raises(ValueError, match="columns of x and weight differ"):
        norms.rms_norm(x, x[0, :4], EPSILON, x)
    with pytest.raises(ValueError, match="side by side"):
        norms.rms_norm(x.T, x[:, 0], EPSILON, x.T)
    with pytest.raises(ValueError, match="without gaps"):
        norms.layer_norm(x[:, ::2].contiguous(), x[0, ::2], x[0, :4], EPSILON, x[:, :4])
    with pytest.raises(ValueError, match="expected floats"):
        activations.relu(x.int(), x)
    with pytest.raises(ValueError, match="one shape"):
        activations.silu_mul(x, x[:, :4], x)
    with pytest.raises(ValueError, match="whole heads"):
        rope(x, x[:, :6], x)
