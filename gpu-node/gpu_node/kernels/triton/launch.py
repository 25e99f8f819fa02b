"""What entries share: checks of their tensors, and what the interpreter cannot do as a device does."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether kernels run on the CPU, without a device."""
MIN_DOT = 16
"""Rows and columns of the smallest product that tensor cores make."""


@triton.jit
def dot(a, b, WIDEN: tl.constexpr):
    """``a @ b`` summed in float32, float32 numbers not cut to TF32.

    ``WIDEN``: the interpreter has no bfloat16, whose products float32 holds exactly.
    """
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


def padded(size: int, least: int = 1) -> int:
    """The power of two that a tile of ``size`` numbers is padded to."""
    return max(least, 1 << (size - 1).bit_length())


def check_rows(*tensors: torch.Tensor) -> None:
    """Buffers of a step: floats, [rows, columns], the columns of a row side by side."""
    for tensor in tensors:
        require(tensor.is_floating_point() and tensor.dim() == 2, "expected floats, [rows, columns]", tensor)
        require(tensor.shape[1] < 2 or tensor.stride(1) == 1, "the columns of a row lie side by side", tensor)


def check_whole(*tensors: torch.Tensor) -> None:
    """Weights and tables: without gaps."""
    for tensor in tensors:
        require(tensor.is_contiguous(), "expected a tensor without gaps", tensor)


def require(condition: bool, text: str, tensor: torch.Tensor | None = None) -> None:
    """`ValueError` with what the tensor is like where ``condition`` does not hold."""
    if not condition:
        found = "" if tensor is None else f"; found {tensor.dtype} {list(tensor.shape)} by {tensor.stride()}"
        raise ValueError(text + found)
