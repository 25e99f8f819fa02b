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


def segment_embedding(token_ids: torch.Tensor, table: torch.Tensor, batch: PagedBatch, separator: int) -> torch.Tensor:
    """Rows of ``table`` [segments, columns] → [rows, columns]: row 0 for a sequence's tokens up to its first
    ``separator``, itself included, and row 1 for those behind it; -1: there is none. All of a sequence is in the batch.
    """
    _require(token_ids.dtype == torch.int64 and token_ids.dim() == 1, "segment_embedding: token_ids are int64 [rows]")
    _require_float(table, 2)
    _require(separator < 0 or len(table) > 1, "segment_embedding: two texts of a pair have a row each")
    _require_whole("segment_embedding", batch)
    return reference.segment_embedding(token_ids, table, batch, separator)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x`` [rows, inputs] times ``weight`` [outputs, inputs] transposed → [rows, outputs]."""
    _require_float(x, 2)
    _require_float(weight, 2)
    _require(x.shape[1] == weight.shape[1], "linear: columns of x and weight differ")
    return reference.linear(x, weight)


def linear_bias(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`linear` plus ``bias`` [outputs] on every row → [rows, outputs]."""
    _require_float(x, 2)
    _require_float(weight, 2)
    _require_float(bias, 1)
    _require(x.shape[1] == weight.shape[1], "linear_bias: columns of x and weight differ")
    _require(weight.shape[:1] == bias.shape, "linear_bias: one bias for each output")
    return reference.linear_bias(x, weight, bias)


def add_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``bias`` [columns] added to every row of ``x`` [rows, columns] → the same shape as x."""
    _require_float(x, 2)
    _require_float(bias, 1)
    _require(x.shape[1:] == bias.shape, "add_bias: one bias for each column")
    return x + bias


def linear_add(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`linear` plus ``residual`` [rows, outputs] → [rows, outputs]."""
    _require_float(residual, 2)
    _require(residual.shape == (len(x), len(weight)), "linear_add: the residual has the shape of the product")
    return residual + linear(x, weight)


def lora(
    x: torch.Tensor, out: torch.Tensor, shrink: torch.Tensor, expand: torch.Tensor, adapters: torch.Tensor
) -> torch.Tensor:
    """``out`` [rows, outputs] plus what each row's adapter makes of ``x`` [rows, inputs] → [rows, outputs].

    ``shrink`` [adapters, rank, inputs] and ``expand`` [adapters, outputs, rank], which has their scales in it;
    ``adapters`` int64 [rows], -1 where a row has none.
    """
    _require_float(x, 2)
    _require_float(out, 2)
    _require_float(shrink, 3)
    _require_float(expand, 3)
    _require(adapters.dtype == torch.int64 and adapters.shape == x.shape[:1], "lora: adapters are int64 [rows]")
    _require(shrink.shape[2] == x.shape[1] and expand.shape[1] == out.shape[1], "lora: matrices of other columns")
    _require(shrink.shape[:2] == expand.shape[::2], "lora: matrices of other adapters, or of another rank")
    return reference.lora(x, out, shrink, expand, adapters)


def gated_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``silu_mul`` of the two halves of a product; ``weight`` [2 * outputs, inputs], gates first → [rows, outputs]."""
    _require(len(weight) % 2 == 0, "gated_linear: the weight has two halves")
    gate, up = linear(x, weight).chunk(2, dim=1)
    return silu_mul(gate, up)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Each row of ``x`` [rows, columns] divided by its root mean square, times ``weight`` [columns]."""
    _require_float(x, 2)
    _require_float(weight, 1)
    _require(x.shape[1:] == weight.shape, "rms_norm: columns of x and weight differ")
    return reference.rms_norm(x, weight, epsilon)


def head_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`rms_norm` of each head of ``x`` [rows, heads * head_dim] on its own; ``weight`` [head_dim] is that of all."""
    _require_float(x, 2)
    _require_float(weight, 1)
    _require(x.shape[1] % len(weight) == 0, "head_norm: x holds whole heads")
    return reference.head_norm(x, weight, epsilon)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    """Each row of ``x`` [rows, columns] with mean 0, variance 1, times ``weight`` [columns], plus ``bias`` if any."""
    _require_float(x, 2)
    for parameter in (weight,) if bias is None else (weight, bias):
        _require_float(parameter, 1)
        _require(x.shape[1:] == parameter.shape, "layer_norm: columns of x, weight and bias differ")
    return reference.layer_norm(x, weight, bias, epsilon)


def rope_angles(positions: torch.Tensor, head_dim: int, theta: float) -> torch.Tensor:
    """Cosines, then sines, of the rotary angles at ``positions`` [rows] (int64) → [rows, head_dim]."""
    _require(positions.dtype == torch.int64 and positions.dim() == 1, "rope_angles: positions are int64 [rows]")
    _require(head_dim % 2 == 0, "rope_angles: head_dim is even")
    return reference.rope_angles(positions, head_dim, theta)


def scaled_rope_angles(positions: torch.Tensor, factors: torch.Tensor, theta: float) -> torch.Tensor:
    """`rope_angles` with the turns of pair i divided by ``factors`` [head_dim / 2] → [rows, head_dim]."""
    _require(positions.dtype == torch.int64 and positions.dim() == 1, "rope_angles: positions are int64 [rows]")
    _require_float(factors, 1)
    return reference.scaled_rope_angles(positions, factors, theta)


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


def rope_write_kv(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, angles: torch.Tensor, cache: torch.Tensor, batch: PagedBatch
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rope` of q and of k, and `write_kv` of the turned k and of v → the turned q and k."""
    turned = rope(k, angles)
    write_kv(turned, v, cache, batch)
    return rope(q, angles), turned


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch) -> torch.Tensor:
    """Causal attention of ``q`` [rows, heads * head_dim] over each sequence's blocks → the same shape.

    Prefill, chunked prefill and decode rows may be mixed; heads are a multiple of the cache's KV heads.
    """
    _require_attention(q, cache, batch)
    return reference.paged_attention(q, cache, batch)


def window_attention(q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch, window: int) -> torch.Tensor:
    """`paged_attention` in which a row sees ``window`` tokens: its own and those just before it."""
    _require_attention(q, cache, batch)
    _require(window > 0, "window_attention: a row sees at least itself")
    return reference.paged_attention(q, cache, batch, window)


def bidirectional_attention(
    q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch, window: int | None = None
) -> torch.Tensor:
    """Attention of rows ``q`` [rows, heads * head_dim] over all of their sequence, which is in the batch → as q.

    With ``window``, a row sees so many tokens up to its own, and as many from its own on.
    """
    _require_attention(q, cache, batch)
    _require_whole("bidirectional_attention", batch)
    _require(window is None or window > 0, "bidirectional_attention: a row sees at least itself")
    return reference.bidirectional_attention(q, cache, batch, window)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``, all [rows, columns]."""
    _require_float(gate, 2)
    _require_float(up, 2)
    _require(gate.shape == up.shape, "silu_mul: gate and up have one shape")
    return reference.silu_mul(gate, up)


def erf_gelu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``erf_gelu(gate) * up``, all [rows, columns]."""
    _require(gate.shape == up.shape, "erf_gelu_mul: gate and up have one shape")
    _require_float(up, 2)
    return erf_gelu(gate) * up


def relu(x: torch.Tensor) -> torch.Tensor:
    """``max(x, 0)``, [rows, columns]."""
    _require_float(x, 2)
    return reference.relu(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU with the tanh approximation that GPT-2 was trained with, [rows, columns]."""
    _require_float(x, 2)
    return reference.gelu(x)


def erf_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU as BERT has it, ``x / 2 * (1 + erf(x / sqrt(2)))``, [rows, columns]."""
    _require_float(x, 2)
    return reference.erf_gelu(x)


def select_first(x: torch.Tensor, batch: PagedBatch, draw_rows: torch.Tensor) -> torch.Tensor:
    """Of ``x`` [rows, columns], the first row of each sequence that draws → [draws, columns].

    ``draw_rows`` int64 [draws]: the sequences' last rows. All of each is in the batch.
    """
    _require_float(x, 2)
    _require_whole("select_first", batch)
    return reference.select_first(x, batch, draw_rows)


def mean_pool(x: torch.Tensor, batch: PagedBatch, draw_rows: torch.Tensor) -> torch.Tensor:
    """The mean of the rows of ``x`` [rows, columns] of each sequence that draws → [draws, columns]; as above."""
    _require_float(x, 2)
    _require_whole("mean_pool", batch)
    return reference.mean_pool(x, batch, draw_rows)


def route(x: torch.Tensor, num_chosen: int) -> torch.Tensor:
    """Share of each expert in each row: ``x`` [rows, experts] → the same shape, ``num_chosen`` not 0, their sum 1."""
    _require_float(x, 2)
    _require(0 < num_chosen <= x.shape[1], "route: chooses one expert at least, and no more than there are")
    return reference.route(x, num_chosen)


def experts(
    x: torch.Tensor, routing: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Gated networks, each over the rows of ``x`` [rows, columns] where its share is not 0, and their weighted sum.

    ``routing`` [rows, experts]; ``gate`` and ``up`` [experts, inner, columns]; ``down`` [experts, columns, inner].
    """
    for tensor, num_dims in ((x, 2), (routing, 2), (gate, 3), (up, 3), (down, 3)):
        _require_float(tensor, num_dims)
    num_experts, inner, columns = gate.shape
    _require(up.shape == gate.shape and down.shape == (num_experts, columns, inner), "experts: of different shapes")
    _require(x.shape[1] == columns and routing.shape == (len(x), num_experts), "experts: rows or columns differ")
    return reference.experts(x, routing, gate, up, down)


def copy_blocks(cache: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """Copy whole blocks of ``cache``, all at once: a block may be the source of one copy and the target of another."""
    _require_float(cache, 5)
    _require(sources.shape == destinations.shape and sources.dim() == 1, "copy_blocks: one destination for each source")
    reference.copy_blocks(cache, sources, destinations)


def _require_cache(cache: torch.Tensor, batch: PagedBatch) -> None:
    _require_float(cache, 5)
    _require(cache.shape[1] == 2 and cache.shape[2] == batch.block_size, "cache: [blocks, 2, block_size, heads, dim]")


def _require_attention(q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch) -> None:
    _require_cache(cache, batch)
    _require_float(q, 2)
    _require(len(q) == len(batch.positions), "paged_attention: q has one row for each of the batch")
    _require(q.shape[1] % (cache.shape[-2] * cache.shape[-1]) == 0, "paged_attention: heads share KV heads evenly")


def _require_whole(name: str, batch: PagedBatch) -> None:
    _require(all(one.start == 0 for one in batch.sequences), f"{name}: a sequence's beginning is in the batch")


def _require_float(tensor: torch.Tensor, num_dims: int) -> None:
    if tensor.dtype != torch.float32 or tensor.dim() != num_dims:
        raise ValueError(f"expected float32 with {num_dims} dimensions, found {tensor.dtype} {list(tensor.shape)}")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)
