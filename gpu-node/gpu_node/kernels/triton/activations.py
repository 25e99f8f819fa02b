"""Activations, number by number."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_rows, launch, padded, require

MAX_TILE = 1024
"""Columns of a row that one program takes."""


@triton.jit
def silu(x):
    """``x * sigmoid(x)`` of float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _silu_mul(gate, up, out, gate_stride, up_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    gates = tl.load(gate + row * gate_stride + columns, mask=here, other=0.0).to(tl.float32)
    ups = tl.load(up + row * up_stride + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + columns, (silu(gates) * ups).to(out.dtype.element_ty), mask=here)


@triton.jit
def erf_gelu_of(x):
    """``x / 2 * (1 + erf(x / sqrt(2)))`` of float32."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def _erf_gelu_mul(gate, up, out, gate_stride, up_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    gates = tl.load(gate + row * gate_stride + columns, mask=here, other=0.0).to(tl.float32)
    ups = tl.load(up + row * up_stride + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + columns, (erf_gelu_of(gates) * ups).to(out.dtype.element_ty), mask=here)


@triton.jit
def _relu(x, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    values = tl.load(x + row * x_stride + columns, mask=here, other=0.0).to(tl.float32)
    positive = tl.where(values < 0.0, 0.0, values)  # what is no number stays none
    tl.store(out + row * out_stride + columns, positive.to(out.dtype.element_ty), mask=here)


@triton.jit
def _gelu(x, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    values = tl.load(x + row * x_stride + columns, mask=here, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (values + 0.044715 * values * values * values)  # sqrt(2 / pi)
    # (1 + tanh(u)) / 2 is 1 / (1 + e ** -2u)
    tl.store(
        out + row * out_stride + columns, (values / (1.0 + tl.exp(-2.0 * inner))).to(out.dtype.element_ty), mask=here
    )


@triton.jit
def _erf_gelu(x, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    values = tl.load(x + row * x_stride + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + columns, erf_gelu_of(values).to(out.dtype.element_ty), mask=here)


@triton.jit
def _tanh(x, out, x_stride, out_stride, num_columns, TILE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = columns < num_columns
    values = tl.load(x + row * x_stride + columns, mask=here, other=0.0).to(tl.float32)
    pressed = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * values))
    tl.store(out + row * out_stride + columns, pressed.to(out.dtype.element_ty), mask=here)


def silu_mul(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    """``silu(gate) * up``, all [rows, columns]; ``out`` may be one of them."""
    _gated(_silu_mul, "silu_mul", gate, up, out)


def erf_gelu_mul(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    """``erf_gelu(gate) * up``, all [rows, columns]; ``out`` may be one of them."""
    _gated(_erf_gelu_mul, "erf_gelu_mul", gate, up, out)


def relu(x: torch.Tensor, out: torch.Tensor) -> None:
    """``max(x, 0)``, [rows, columns]; ``out`` may be ``x``."""
    _each(_relu, "relu", x, out)


def gelu(x: torch.Tensor, out: torch.Tensor) -> None:
    """GELU with the tanh approximation that GPT-2 was trained with, [rows, columns]; ``out`` may be ``x``."""
    _each(_gelu, "gelu", x, out)


def erf_gelu(x: torch.Tensor, out: torch.Tensor) -> None:
    """GELU as BERT has it, with the error function, [rows, columns]; ``out`` may be ``x``."""
    _each(_erf_gelu, "erf_gelu", x, out)


def tanh(x: torch.Tensor, out: torch.Tensor) -> None:
    """The hyperbolic tangent, [rows, columns]; ``out`` may be ``x``."""
    _each(_tanh, "tanh", x, out)


def _gated(kernel: Any, name: str, gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    check_rows(gate, up, out)
    require(gate.shape == up.shape == out.shape, f"{name}: gate, up and out have one shape")
    strides = gate.stride(0), up.stride(0), out.stride(0)
    launch(kernel, _grid(gate), gate, up, out, *strides, gate.shape[1], TILE=_tile(gate))


def _each(kernel: Any, name: str, x: torch.Tensor, out: torch.Tensor) -> None:
    """A function of each number."""
    check_rows(x, out)
    require(x.shape == out.shape, f"{name}: x and out have one shape")
    launch(kernel, _grid(x), x, out, x.stride(0), out.stride(0), x.shape[1], TILE=_tile(x))


def _tile(x: torch.Tensor) -> int:
    return min(MAX_TILE, padded(x.shape[1]))


def _grid(x: torch.Tensor) -> tuple[int, int]:
    """Programs for all rows, and for all columns of each."""
    return len(x), triton.cdiv(x.shape[1], _tile(x))
