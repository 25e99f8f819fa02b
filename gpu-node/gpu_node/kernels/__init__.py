"""The typed entry of each operation: checks shapes and types, then calls the backend.

In shapes, ``rows`` are the tokens of a step's batch; heads lie side by side in the columns. A layer's KV cache is
``[num_blocks, 2, block_size, kv_heads, head_dim]``, keys before values. Numbers are float32, indices int64.
A wrong shape or type is a defect of the caller: `ValueError`.
"""

from __future__ import annotations

import torch

from gpu_node.kernels import reference
from gpu_node.kernels.paged_batch import PagedBatch


def embedding(token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of ``table`` [vocabulary, columns] for ``token_ids`` [rows] → [rows, columns]."""
    _require(token_ids.dtype == torch.int64 and token_ids.dim() == 1, "embedding: token_ids are int64 [rows]")
    _require_float(table, 2)
    return reference.embedding(token_ids, table)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x`` [rows, inputs] times ``weight`` [outputs, inputs] transposed → [rows, outputs]."""
    _require_float(x, 2)
    _require_float(weight, 2)
    _require(x.shape[1] == weight.shape[1], "linear: columns of x and weight differ")
    return reference.linear(x, weight)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Each row of ``x`` [rows, columns] divided by its root mean square, times ``weight`` [columns]."""
    _require_float(x, 2)
    _require_float(weight, 1)
    _require(x.shape[1:] == weight.shape, "rms_norm: columns of x and weight differ")
    return reference.rms_norm(x, weight, epsilon)


def rope_angles(positions: torch.Tensor, head_dim: int, theta: float) -> torch.Tensor:
    """Cosines, then sines, of the rotary angles at ``positions`` [rows] (int64) → [rows, head_dim]."""
    _require(positions.dtype == torch.int64 and positions.dim() == 1, "rope_angles: positions are int64 [rows]")
    _require(head_dim % 2 == 0, "rope_angles: head_dim is even")
    return reference.rope_angles(positions, head_dim, theta)


def rope(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate the heads of ``x`` [rows, heads * head_dim] by ``angles`` [rows, head_dim] → the same shape as x."""
    _require_float(x, 2)
    _require_float(angles, 2)
    _require(len(x) == len(angles) and x.shape[1] % angles.shape[1] == 0, "rope: angles for each row, whole heads")
    return reference.rope(x, angles)


def write_kv(k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, batch: PagedBatch) -> None:
    """Write ``k`` and ``v`` [rows, kv_heads * head_dim] into the rows' slots of ``cache``."""
    _require_cache(cache, batch)
    _require_float(k, 2)
    _require_float(v, 2)
    columns = cache.shape[-2] * cache.shape[-1]
    _require(k.shape == v.shape == (len(batch.positions), columns), "write_kv: k and v are [rows, kv_heads * head_dim]")
    reference.write_kv(k, v, cache, batch)


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch) -> torch.Tensor:
    """Causal attention of ``q`` [rows, heads * head_dim] over each sequence's blocks → the same shape.

    Prefill, chunked prefill and decode rows may be mixed; heads are a multiple of the cache's KV heads.
    """
    _require_cache(cache, batch)
    _require_float(q, 2)
    _require(len(q) == len(batch.positions), "paged_attention: q has one row for each of the batch")
    _require(q.shape[1] % (cache.shape[-2] * cache.shape[-1]) == 0, "paged_attention: heads share KV heads evenly")
    return reference.paged_attention(q, cache, batch)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``, all [rows, columns]."""
    _require_float(gate, 2)
    _require_float(up, 2)
    _require(gate.shape == up.shape, "silu_mul: gate and up have one shape")
    return reference.silu_mul(gate, up)


def copy_blocks(cache: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """Copy whole blocks of ``cache``, all at once: a block may be the source of one copy and the target of another."""
    _require_float(cache, 5)
    _require(sources.shape == destinations.shape and sources.dim() == 1, "copy_blocks: one destination for each source")
    reference.copy_blocks(cache, sources, destinations)


def _require_cache(cache: torch.Tensor, batch: PagedBatch) -> None:
    _require_float(cache, 5)
    _require(cache.shape[1] == 2 and cache.shape[2] == batch.block_size, "cache: [blocks, 2, block_size, heads, dim]")


def _require_float(tensor: torch.Tensor, num_dims: int) -> None:
    if tensor.dtype != torch.float32 or tensor.dim() != num_dims:
        raise ValueError(f"expected float32 with {num_dims} dimensions, found {tensor.dtype} {list(tensor.shape)}")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)
