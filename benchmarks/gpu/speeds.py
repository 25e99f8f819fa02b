"""What the machine does at best, and attention over blocks beside torch's own on contiguous tensors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping

import torch
from laid_out import HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, LaidOut
from line import Line
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpu_node.executors.cuda.program.graphs.graphs import CudaGraphs

DECODES = [(1, 4096), (1, 32768), (16, 4096), (64, 1024), (64, 4096), (256, 1024), (512, 1280)]
"""Sequences and tokens of context."""
PREFILLS = [(1, 512), (1, 2048), (1, 8192), (8, 1024)]
"""Sequences and tokens of prompt."""
LEAST_BYTES = 1 << 28
"""What a decode has to read for the goal to be its: less does not keep a device busy for as long as a launch takes."""
LEAST_TOKENS = 2048
"""Likewise, rows of a prefill."""
DECODE_GOAL, PREFILL_GOAL = 0.85, 0.8
NUM_TRIES = 20
COPY_BYTES = 1 << 30
MATRIX = 8192
CACHE_BYTES = 256 << 20
"""Read between two tries: more than any cache holds."""
COPY_RATE, MATRIX_RATE = "copy_gb_per_s", "matrix_tflop_per_s"


def median_s(run: Callable[[], object], device: torch.device) -> float:
    """Seconds on the device, launched as a graph, so that no kernel waits for the host."""
    return _median_s(CudaGraphs(device).capture(run).replay, device)


def _median_s(run: Callable[[], object], device: torch.device) -> float:
    """With nothing of use in the device's caches, and nothing in them that has to be written back."""
    others = torch.zeros(CACHE_BYTES // 8, dtype=torch.int64, device=device)
    times: list[float] = []
    for number in range(NUM_TRIES + 3):  # the first ones warm up
        others.amax()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def measure_machine(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """Copies, and a product of large matrices: launched, for a graph copies more slowly (2,446 : 3,032 GB/s, H100)."""
    source, target = (torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    host = torch.zeros(COPY_BYTES // 4, dtype=torch.uint8, pin_memory=True)
    rate = 2 * COPY_BYTES / _median_s(lambda: target.copy_(source), device)
    yield Line("copy on the device, read and written", rate / 1e9, "GB/s", key=COPY_RATE)
    rate = len(host) / _median_s(lambda: host.copy_(source[: len(host)], non_blocking=True), device)
    yield Line("copy to pinned host memory", rate / 1e9, "GB/s")
    rate = len(host) / _median_s(lambda: target[: len(host)].copy_(host, non_blocking=True), device)
    yield Line("copy from pinned host memory", rate / 1e9, "GB/s")
    a, b = torch.randn(2, MATRIX, MATRIX, device=device).bfloat16()
    rate = 2 * MATRIX**3 / _median_s(lambda: a @ b, device)
    yield Line("product of matrices, bfloat16", rate / 1e12, "TFLOP/s", key=MATRIX_RATE)


def measure_attention(
    device: torch.device, measured: Mapping[str, float], _share: int, _num_shares: int
) -> Iterator[Line]:
    """Decodes, then prompts. Goals are of those that keep the device busy."""
    copy = measured.get(COPY_RATE, float("nan"))
    for batch, context in DECODES:
        ours, theirs, failure = _both(batch, context - 1, 1, device)
        num_bytes = 2 * batch * context * NUM_KV_HEADS * HEAD_DIM * 2
        what, rate = f"decode, {batch} x {context} tokens", num_bytes / ours / 1e9
        note = failure or f"torch's flash attention, contiguous: {num_bytes / theirs / 1e9:,.0f}"
        yield Line(what, rate, "GB/s", note)
        goal = DECODE_GOAL if num_bytes >= LEAST_BYTES else None
        yield Line(f"{what}: part of the copy", rate / copy, "", at_least=goal)
    for batch, tokens in PREFILLS:
        ours, theirs, failure = _both(batch, 0, tokens, device)
        # two products of two operations a number, for the pairs that the causal mask leaves
        operations = 4 * batch * tokens * (tokens + 1) / 2 * NUM_HEADS * HEAD_DIM
        what, rate = f"prefill, {batch} x {tokens} tokens", operations / ours / 1e12
        note = failure or f"torch's flash attention, contiguous: {operations / theirs / 1e12:,.0f}"
        yield Line(what, rate, "TFLOP/s", note)
        goal = PREFILL_GOAL if batch * tokens >= LEAST_TOKENS else None
        yield Line(f"{what}: part of torch's", theirs / ours, "", at_least=goal)


def _both(num_sequences: int, start: int, num_rows: int, device: torch.device) -> tuple[float, float, str]:
    """Seconds of ours and of torch's attention for the rows of these sequences, all of one length.

    NaN for torch's, and why, where it has none for this device.
    """
    rows, context = LaidOut(num_sequences, start, num_rows, device), start + num_rows
    ours = median_s(rows.attend, device)
    queries = rows.q.view(num_sequences, num_rows, NUM_HEADS, HEAD_DIM).transpose(1, 2)
    k, v = torch.randn(2, num_sequences, NUM_KV_HEADS, context, HEAD_DIM, device=device).bfloat16()
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # not what torch thinks best: that differs between versions
            theirs = median_s(
                lambda: scaled_dot_product_attention(queries, k, v, is_causal=num_rows > 1, enable_gqa=True), device
            )
    except RuntimeError as error:
        return ours, float("nan"), f"torch: {str(error).splitlines()[0]}"
    return ours, theirs, ""
