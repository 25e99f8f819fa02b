"""Products of matrices, and what else is torch's own: each written where it belongs, in no memory of its own."""

from __future__ import annotations

import torch

from gpu_node.kernels.triton import activations
from gpu_node.kernels.triton.launch import queue


def multiply(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """``x @ weight``; a wider ``out``, as logits are, gets sums that were not rounded to the type of ``x`` before."""
    if x.dtype == out.dtype:
        torch.mm(x, weight, out=out)
    elif x.is_cuda:
        torch.mm(x, weight, out_dtype=out.dtype, out=out)
    else:  # torch has that product on CUDA devices only
        queue("mm", lambda: torch.mm(x.to(out.dtype), weight.to(out.dtype), out=out))


def multiply_and_add(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """``x @ weight + bias``."""
    torch.addmm(bias, x, weight, out=out)


def add_product(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """``out + x @ weight``, in place."""
    out.addmm_(x, weight)


def multiply_and_gate(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """``silu(a) * b``, where ``a`` and ``b`` are the two halves of the columns of ``x @ weight``."""
    product = x.new_empty((len(x), weight.shape[1]))
    torch.mm(x, weight, out=product)
    gate, up = product.chunk(2, dim=1)
    activations.silu_mul(gate, up, out)


def add(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """``a + b``, where ``b`` has as many rows or is one row for all."""
    torch.add(a, b, out=out)


def select(x: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    """The ``rows`` of ``x``."""
    torch.index_select(x, 0, rows, out=out)


def copy(x: torch.Tensor, out: torch.Tensor) -> None:
    """``x``."""
    out.copy_(x)
