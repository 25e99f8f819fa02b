"""Attention over blocks, causal or of whole texts: single rows and longer parts of sequences, as they come
(PagedAttention, §4.3)."""

from __future__ import annotations

import torch

from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.decode_attention import decode_attention, num_splits
from gpu_node.kernels.triton.attention.prefill_attention import prefill_attention
from gpu_node.kernels.triton.cache import DeviceBatch, LayerCache
from gpu_node.kernels.triton.launch import check_rows, num_processors, require


def paged_attention(q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, out: torch.Tensor) -> None:
    """Causal attention of ``q`` [rows, heads * head_dim] over each sequence's blocks → ``out`` of the same shape."""
    _attention(q, cache, batch, UNBOUNDED, out)


def window_attention(q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor) -> None:
    """`paged_attention` in which a row sees ``window`` tokens: its own and those just before it."""
    require(window > 0, "window_attention: a row sees at least itself")
    _attention(q, cache, batch, min(window, UNBOUNDED), out)


def bidirectional_attention(q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, out: torch.Tensor) -> None:
    """`paged_attention` in which a row sees all of its sequence, whose rows are all in the batch."""
    _attention(q, cache, batch, UNBOUNDED, out, both_sides=True)


def bidirectional_window_attention(
    q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor
) -> None:
    """`bidirectional_attention` in which a row sees ``window`` tokens up to its own, and as many from its own on."""
    require(window > 0, "bidirectional_window_attention: a row sees at least itself")
    _attention(q, cache, batch, min(window, UNBOUNDED), out, both_sides=True)


def _attention(
    q: torch.Tensor, cache: LayerCache, batch: DeviceBatch, window: int, out: torch.Tensor, *, both_sides: bool = False
) -> None:
    check_rows(q, out)
    shape = cache.shape
    require(q.shape == out.shape, "paged_attention: q and out have one shape")
    require(len(q) == len(batch.positions), "paged_attention: q has one row for each of the batch")
    require(
        q.shape[1] > 0 and q.shape[1] % (shape.num_kv_heads * shape.head_dim) == 0,
        "paged_attention: heads share KV heads evenly",
    )
    num_context_tokens = min(batch.max_context_tokens, window)
    splits = num_splits(len(batch.decodes) * shape.num_kv_heads, num_context_tokens, num_processors(q.device))
    decode_attention(q, cache, batch, window, out, splits)
    prefill_attention(q, cache, batch, window, out, both_sides=both_sides)
