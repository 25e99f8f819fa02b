"""Which experts a row goes to, and with what share (Mixtral, 2024)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.launch import check_rows, launch, padded, require

_LEAST_SHARE = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def _route(x, out, x_stride, out_stride, num_experts, NUM_CHOSEN: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, PADDED)
    here = experts < num_experts
    values = tl.load(x + row * x_stride + experts, mask=here, other=float("-inf")).to(tl.float32)
    chosen = experts < 0
    for _ in tl.static_range(NUM_CHOSEN):
        best = tl.argmax(tl.where(chosen, float("-inf"), values), 0)
        chosen = chosen | (experts == best)
    chosen = chosen & here
    most = tl.max(tl.where(chosen, values, float("-inf")), 0)
    # a share that underflows stays above 0: that is how others know which were chosen
    weights = tl.where(chosen, tl.maximum(tl.exp(values - most), _LEAST_SHARE), 0.0)
    shares = tl.where(chosen, weights / tl.sum(weights, 0), 0.0)
    tl.store(out + row * out_stride + experts, shares.to(out.dtype.element_ty), mask=here)


def route(x: torch.Tensor, num_chosen: int, out: torch.Tensor) -> None:
    """Share of each expert in each row: ``x`` [rows, experts] → ``out``, ``num_chosen`` not 0, their sum 1.

    Equals are chosen in the order of their numbers. ``out`` is float32, so that no share is rounded to 0.
    """
    check_rows(x, out)
    require(x.shape == out.shape, "route: x and out have one shape")
    require(out.dtype == torch.float32, "route: shares are float32", out)
    require(0 < num_chosen <= x.shape[1], "route: chooses one expert at least, and no more than there are")
    num_experts = x.shape[1]
    launch(
        _route,
        (len(x),),
        x,
        out,
        x.stride(0),
        out.stride(0),
        num_experts,
        NUM_CHOSEN=num_chosen,
        PADDED=padded(num_experts),
        num_warps=1,
    )
