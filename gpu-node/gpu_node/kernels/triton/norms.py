"""Norms over rows or over the heads of rows, and with them the addition that comes before (PagedAttention, §5.1)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_rows, check_whole, launch, padded, require

MAX_COLUMNS = 1 << 15
"""A row is held in registers as a whole."""


@triton.jit
def _norm(
    x,
    residual,
    weight,
    bias,
    out,
    x_stride,
    residual_stride,
    out_stride,
    epsilon,
    num_columns,
    ADDS: tl.constexpr,
    IS_CENTRED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, PADDED)
    here = columns < num_columns
    at = tl.program_id(1) * num_columns + columns  # of this head, where each is normed alone
    values = tl.load(x + row * x_stride + at, mask=here, other=0.0).to(tl.float32)
    if ADDS:
        before = tl.load(residual + row * residual_stride + at, mask=here, other=0.0).to(tl.float32)
        # what is normed is what the residual holds now, rounded as it is
        total = (before + values).to(residual.dtype.element_ty)
        tl.store(residual + row * residual_stride + at, total, mask=here)
        values = total.to(tl.float32)
    if IS_CENTRED:
        values = tl.where(here, values - tl.sum(values, 0) / num_columns, 0.0)
    scaled = values * (1.0 / tl.sqrt(tl.sum(values * values, 0) / num_columns + epsilon))
    result = scaled * tl.load(weight + columns, mask=here, other=0.0).to(tl.float32)
    if HAS_BIAS:
        result += tl.load(bias + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + at, result.to(out.dtype.element_ty), mask=here)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor) -> None:
    """Each row of ``x`` [rows, columns] divided by its root mean square, times ``weight`` [columns]."""
    require(x.shape[1:] == weight.shape, "rms_norm: columns of x and weight differ")
    _launch(x, None, weight, None, epsilon, out)


def head_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor) -> None:
    """`rms_norm` of each head of ``x`` [rows, heads * head_dim]; ``weight`` [head_dim]. ``out`` may be ``x``."""
    require(x.shape[1] % len(weight) == 0, "head_norm: x holds whole heads")
    _launch(x, None, weight, None, epsilon, out)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, epsilon: float, out: torch.Tensor
) -> None:
    """Each row of ``x`` [rows, columns] with mean 0, variance 1, times ``weight`` [columns], plus ``bias`` if any."""
    columns = (weight if bias is None else bias).shape
    require(x.shape[1:] == weight.shape == columns, "layer_norm: columns of x, weight and bias differ")
    _launch(x, None, weight, bias, epsilon, out, is_centred=True)


def add_rms_norm(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor
) -> None:
    """Add ``x`` to ``residual`` in place, and `rms_norm` of the sum; all [rows, columns]."""
    require(x.shape[1:] == weight.shape, "add_rms_norm: columns of x and weight differ")
    _launch(x, residual, weight, None, epsilon, out)


def add_layer_norm(
    residual: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    epsilon: float,
    out: torch.Tensor,
) -> None:
    """Add ``x`` to ``residual`` in place, and `layer_norm` of the sum; all [rows, columns]."""
    columns = (weight if bias is None else bias).shape
    require(x.shape[1:] == weight.shape == columns, "add_layer_norm: columns of x, weight and bias differ")
    _launch(x, residual, weight, bias, epsilon, out, is_centred=True)


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    epsilon: float,
    out: torch.Tensor,
    *,
    is_centred: bool = False,
) -> None:
    total = x if residual is None else residual
    check_rows(x, total, out)
    check_whole(weight, weight if bias is None else bias)
    require(x.shape == total.shape == out.shape, "norm: all rows have one shape")
    num_columns = len(weight)
    require(num_columns <= MAX_COLUMNS, f"norm: rows of at most {MAX_COLUMNS} columns", x)
    launch(
        _norm,
        (len(x), x.shape[1] // num_columns),
        x,
        total,
        weight,
        weight if bias is None else bias,
        out,
        x.stride(0),
        total.stride(0),
        out.stride(0),
        epsilon,
        num_columns,
        ADDS=residual is not None,
        IS_CENTRED=is_centred,
        HAS_BIAS=bias is not None,
        PADDED=padded(num_columns),
        num_warps=8 if num_columns > 2048 else 4,
    )
