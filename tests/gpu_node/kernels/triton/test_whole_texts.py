"""Kernels of encoders, over columns of wider buffers, against the reference in float64."""

from __future__ import annotations

import pytest
import torch

from gpu_node.kernels import reference
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.kernels.triton import activations, norms, whole_texts
from tests.gpu_node.kernels.triton.buffers import DEVICE, ERRORS, TYPES, Buffer, error, numbers, wide

LENGTHS = [5, 1, 140, 2]
"""Of texts; the third is looked through in two tiles."""
SEPARATOR = 9
BATCH = paged_batch([PagedSequence(0, length, list(range(9))) for length in LENGTHS], 16)
DRAWS = [4, 5, 145, 147]

# e ** x is infinite for a device without a word; the interpreter's numpy warns
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")


def int32(values: list[int] | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values).to(DEVICE, torch.int32)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (3, 1100)])
def test_activations(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x, out = Buffer.of(numbers(*shape, dtype=dtype) * 3), Buffer(*shape, dtype)
    activations.erf_gelu(x.view, out.view)
    assert error(out.written(), reference.erf_gelu(x.written())) < ERRORS[dtype]
    activations.tanh(x.view, out.view)
    assert error(out.written(), x.written().tanh()) < ERRORS[dtype]
    up = Buffer.of(numbers(*shape, dtype=dtype))
    activations.erf_gelu_mul(x.view, up.view, out.view)
    assert error(out.written(), reference.erf_gelu(x.written()) * up.written()) < ERRORS[dtype]


def test_a_tangent_at_its_ends() -> None:
    x = Buffer.of(torch.tensor([[-1e30, -50.0, 0.0, 50.0, 1e30, torch.nan]], device=DEVICE))
    activations.tanh(x.view, x.view)
    assert x.written()[0, :5].tolist() == [-1, -1, 0, 1, 1]
    assert x.written()[0, 5].isnan()


@pytest.mark.parametrize("num_columns", [5, 1030])
@pytest.mark.parametrize(("first_row", "num_rows"), [(0, 148), (5, 141), (6, 0)])
def test_segments(num_columns: int, first_row: int, num_rows: int) -> None:
    ids = torch.randint(10, 30, (148,))
    ids[[1, 3, 5, 7, 140]] = SEPARATOR
    table, out = numbers(2, num_columns), Buffer(num_rows, num_columns)
    whole_texts.segment_embedding(table, int32(ids), int32(BATCH.positions), first_row, SEPARATOR, out.view)
    expected = reference.segment_embedding(ids, wide(table), BATCH, SEPARATOR)
    assert out.written().equal(expected[first_row : first_row + num_rows])


def test_one_segment() -> None:
    table, out = numbers(1, 8), Buffer(148, 8)
    ids = torch.full((148,), SEPARATOR)
    whole_texts.segment_embedding(table, int32(ids), int32(BATCH.positions), 0, -1, out.view)
    assert out.written().equal(wide(table).expand(148, 8))
    with pytest.raises(ValueError, match="two texts of a pair have a row each"):
        whole_texts.segment_embedding(table, int32(ids), int32(BATCH.positions), 0, SEPARATOR, out.view)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_norms_without_bias(dtype: torch.dtype) -> None:
    x, out, weight = Buffer.of(numbers(3, 40, dtype=dtype) + 1), Buffer(3, 40, dtype), numbers(40, dtype=dtype)
    norms.layer_norm(x.view, weight, None, 1e-5, out.view)
    assert error(out.written(), reference.layer_norm(x.written(), wide(weight), None, 1e-5)) < ERRORS[dtype]
    residual = Buffer.of(numbers(3, 40, dtype=dtype))
    before = residual.written()
    norms.add_layer_norm(residual.view, x.view, weight, None, 1e-5, out.view)
    assert error(residual.written(), before + x.written()) < ERRORS[dtype]
    assert error(out.written(), reference.layer_norm(residual.written(), wide(weight), None, 1e-5)) < ERRORS[dtype]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("num_columns", [1, 24, 1030])
def test_pools(dtype: torch.dtype, num_columns: int) -> None:
    x, draws = Buffer.of(numbers(148, num_columns, dtype=dtype)), torch.tensor(DRAWS)
    for out in (Buffer(4, num_columns, dtype), Buffer(4, num_columns, torch.float32)):  # a result is not rounded
        whole_texts.mean_pool(x.view, int32(BATCH.positions), int32(DRAWS), out.view)
        assert error(out.written(), reference.mean_pool(x.written(), BATCH, draws)) < ERRORS[out.view.dtype]
        whole_texts.select_first(x.view, int32(BATCH.positions), int32(DRAWS), out.view)
        assert out.written().equal(x.written()[[0, 5, 6, 146]])
    whole_texts.mean_pool(x.view, int32(BATCH.positions), int32(DRAWS)[:0], out.view[:0])
    with pytest.raises(ValueError, match="a row of as many columns for each draw"):
        whole_texts.mean_pool(x.view, int32(BATCH.positions), int32(DRAWS)[:2], out.view)
