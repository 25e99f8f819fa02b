"""What the machine does at best, and attention over blocks beside torch's own on contiguous tensors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention import paged_attention
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places, device_batch
from gpu_node.kernels.triton.prefill_attention import rows_together

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 16
"""Llama 3 8B."""
DECODES = [(1, 4096), (1, 32768), (16, 4096), (64, 1024), (64, 4096), (256, 1024)]
"""Sequences and tokens of context."""
PREFILLS = [(1, 512), (1, 2048), (1, 8192), (8, 1024)]
"""Sequences and tokens of prompt."""
NUM_TRIES = 20
COPY_BYTES = 1 << 30
MATRIX = 8192
CACHE_BYTES = 256 << 20
"""Written between two tries: more than any cache holds."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Something measured."""

    what: str
    value: float
    unit: str
    torch_value: float | None = None
    """The same by torch, where that is to be compared."""

    def row(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        beside = "" if self.torch_value is None else f"   torch, contiguous: {self.torch_value:10.1f}"
        return f"{self.what:44} {self.value:10.1f} {self.unit}{beside}"


def measure_all(device: torch.device) -> list[Rate]:
    """The machine, decode, prefill."""
    decodes = [_decode(batch, context, device) for batch, context in DECODES]
    return [*_machine(device), *decodes, *(_prefill(batch, tokens, device) for batch, tokens in PREFILLS)]


def median_s(run: Callable[[], object], device: torch.device) -> float:
    """Seconds on the device, caches cold."""
    flush = torch.empty(CACHE_BYTES, dtype=torch.uint8, device=device)
    times = []
    for number in range(NUM_TRIES + 3):  # the first ones compile and warm up
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _machine(device: torch.device) -> list[Rate]:
    source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    host = torch.empty(COPY_BYTES // 4, dtype=torch.uint8, pin_memory=True)
    a, b = torch.randn(2, MATRIX, MATRIX, device=device).bfloat16()
    copy_s = median_s(lambda: target.copy_(source), device)
    out_s = median_s(lambda: host.copy_(source[: len(host)], non_blocking=True), device)
    in_s = median_s(lambda: target[: len(host)].copy_(host, non_blocking=True), device)
    matrix_s = median_s(lambda: a @ b, device)
    return [
        Rate("copy on the device, read and written", 2 * COPY_BYTES / copy_s / 1e9, "GB/s"),
        Rate("copy to pinned host memory", len(host) / out_s / 1e9, "GB/s"),
        Rate("copy from pinned host memory", len(host) / in_s / 1e9, "GB/s"),
        Rate("product of matrices, bfloat16", 2 * MATRIX**3 / matrix_s / 1e12, "TFLOP/s"),
    ]


def _decode(batch: int, context: int, device: torch.device) -> Rate:
    ours, theirs = _both([PagedSequence(context - 1, 1, table) for table in _tables(batch, context)], device)
    num_bytes = 2 * batch * context * NUM_KV_HEADS * HEAD_DIM * 2
    what = f"decode attention, {batch} x {context} tokens"
    return Rate(what, num_bytes / ours / 1e9, "GB/s", num_bytes / theirs / 1e9)


def _prefill(batch: int, tokens: int, device: torch.device) -> Rate:
    ours, theirs = _both([PagedSequence(0, tokens, table) for table in _tables(batch, tokens)], device)
    # two products of two operations a number, for the pairs that the causal mask leaves
    operations = 4 * batch * tokens * (tokens + 1) / 2 * NUM_HEADS * HEAD_DIM
    what = f"prefill attention, {batch} x {tokens} tokens"
    return Rate(what, operations / ours / 1e12, "TFLOP/s", operations / theirs / 1e12)


def _tables(batch: int, tokens: int) -> list[list[int]]:
    """Blocks in random order, as an engine leaves them."""
    size = -(-tokens // BLOCK_SIZE)
    order = torch.randperm(batch * size, generator=torch.Generator().manual_seed(0)).tolist()
    return [order[number * size : (number + 1) * size] for number in range(batch)]


def _both(sequences: Sequence[PagedSequence], device: torch.device) -> tuple[float, float]:
    """Seconds of ours and of torch's attention for the rows of these sequences, all of one length."""
    shape = CacheShape(1, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)
    lines = shape.block_lines(2)
    num_blocks = sum(len(sequence.block_table) for sequence in sequences)
    numbers = torch.randn(num_blocks * lines * 32, device=device).bfloat16()
    cache, together = LayerCache(numbers, shape, 0), rows_together(NUM_HEADS // NUM_KV_HEADS)
    batch = device_batch(sequences, BLOCK_SIZE, Places(num_blocks * lines, lines), device, rows_together=together)
    q = torch.randn(len(batch.positions), NUM_HEADS * HEAD_DIM, device=device).bfloat16()
    out = torch.empty_like(q)
    ours = median_s(lambda: paged_attention(q, cache, batch, out), device)
    num_rows, context = sequences[0].num_rows, sequences[0].start + sequences[0].num_rows
    queries = q.view(len(sequences), num_rows, NUM_HEADS, HEAD_DIM).transpose(1, 2)
    k, v = torch.randn(2, len(sequences), NUM_KV_HEADS, context, HEAD_DIM, device=device).bfloat16()
    theirs = median_s(
        lambda: scaled_dot_product_attention(queries, k, v, is_causal=num_rows > 1, enable_gqa=True), device
    )
    return ours, theirs
