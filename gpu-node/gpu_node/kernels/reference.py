"""The operations in plain torch: the truth that other backends are tested against. Shapes: see the entry module."""

from __future__ import annotations

import torch
from torch.nn import functional

from gpu_node.kernels.paged_batch import AttentionGroup, PagedBatch


def embedding(token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of ``table``."""
    return table[token_ids]


def segment_embedding(token_ids: torch.Tensor, table: torch.Tensor, batch: PagedBatch, separator: int) -> torch.Tensor:
    """Segments A and B (BERT, NAACL'19, §3.2): a sequence's rows up to its first separator, and those behind it."""
    is_separator = (token_ids == separator).long()
    num_before = is_separator.cumsum(dim=0) - is_separator
    firsts = torch.arange(len(token_ids)) - batch.positions
    return table[(num_before - num_before[firsts]).clamp(max=1)]


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T``."""
    return functional.linear(x, weight)


def linear_bias(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T + bias``."""
    return functional.linear(x, weight, bias)


def lora(
    x: torch.Tensor, out: torch.Tensor, shrink: torch.Tensor, expand: torch.Tensor, adapters: torch.Tensor
) -> torch.Tensor:
    """Adapter after adapter, each over its own rows (Hu et al., ICLR'22, §4.1)."""
    changed = out.clone()
    for adapter in range(len(shrink)):
        rows = (adapters == adapter).nonzero().flatten()
        changed[rows] += linear(linear(x[rows], shrink[adapter]), expand[adapter])
    return changed


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Root-mean-square normalisation (Zhang, Sennrich, NeurIPS'19)."""
    return weight * (x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + epsilon))


def head_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`rms_norm` over the columns of one head (Dehghani et al., ICML'23, "query/key normalization")."""
    return rms_norm(x.view(len(x), x.shape[1] // len(weight), len(weight)), weight, epsilon).view_as(x)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    """Layer normalisation (Ba, Kiros, Hinton, 2016)."""
    centred = x - x.mean(dim=-1, keepdim=True)
    normed = weight * (centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + epsilon))
    return normed if bias is None else normed + bias


def rope_angles(positions: torch.Tensor, head_dim: int, theta: float) -> torch.Tensor:
    """Pair i of a head turns by position / theta ** (2i / head_dim) (RoFormer, 2021)."""
    return _angles(positions, _speeds(head_dim // 2, theta))


def scaled_rope_angles(positions: torch.Tensor, factors: torch.Tensor, theta: float) -> torch.Tensor:
    """Pair i of a head turns by position / (theta ** (2i / head_dim) * factors[i])."""
    return _angles(positions, _speeds(len(factors), theta) / factors)


def _speeds(num_pairs: int, theta: float) -> torch.Tensor:
    return 1.0 / theta ** (torch.arange(num_pairs, dtype=torch.float32) / num_pairs)


def _angles(positions: torch.Tensor, speeds: torch.Tensor) -> torch.Tensor:
    angles = positions.to(torch.float32)[:, None] * speeds
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def rope(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (i, i + head_dim / 2) of every head."""
    half = angles.shape[1] // 2
    cosine, sine = angles[:, None, :half], angles[:, None, half:]
    first, second = x.view(len(x), x.shape[1] // (2 * half), 2, half).unbind(dim=2)
    turned = torch.stack((first * cosine - second * sine, second * cosine + first * sine), dim=2)
    return turned.view_as(x)


def write_kv(k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, batch: PagedBatch) -> None:
    """Put each row's key and value into its slot."""
    head_shape = cache.shape[-2:]
    cache[batch.blocks, 0, batch.offsets] = k.view(len(k), *head_shape)
    cache[batch.blocks, 1, batch.offsets] = v.view(len(v), *head_shape)


def bidirectional_attention(
    q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch, window: int | None = None
) -> torch.Tensor:
    """softmax(q k^T / sqrt(head_dim)) v over all of each row's sequence (BERT, NAACL'19), or over less than ``window``
    tokens to either side (Longformer, 2020, §3.1), group by group."""
    output = torch.empty_like(q)
    for group in batch.groups:
        visible = group.visible[:, -1:].expand_as(group.visible)
        if window is not None:
            away = torch.arange(visible.shape[-1]) - batch.positions[group.rows][:, :, None]
            visible = visible & (away.abs() < window)
        output[group.rows] = _group_attention(q[group.rows], cache, group, visible)
    return output


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: PagedBatch, window: int | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(head_dim)) v over each row's own context, or its last ``window`` tokens, group by group."""
    output = torch.empty_like(q)
    for group in batch.groups:
        visible = group.visible
        if window is not None:
            firsts = batch.positions[group.rows] - window + 1
            visible = visible & (torch.arange(visible.shape[-1]) >= firsts[:, :, None])
        output[group.rows] = _group_attention(q[group.rows], cache, group, visible)
    return output


def _group_attention(
    q: torch.Tensor, cache: torch.Tensor, group: AttentionGroup, visible: torch.Tensor
) -> torch.Tensor:
    num_sequences, num_rows, _ = q.shape
    num_kv_heads, head_dim = cache.shape[-2:]
    # heads that share a KV head are further queries to it: [sequences, kv_heads, heads of it, rows, head_dim]
    queries = q.view(num_sequences, num_rows, num_kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
    num_shared = queries.shape[2]
    queries = queries.reshape(num_sequences, num_kv_heads, num_shared * num_rows, head_dim)
    keys = cache[group.block_tables, 0].flatten(1, 2).transpose(1, 2)  # [sequences, kv_heads, tokens, head_dim]
    values = cache[group.block_tables, 1].flatten(1, 2)
    # no row of a sequence sees beyond its last one; there may be anything there, and 0 * NaN is NaN
    values.masked_fill_(~group.visible[:, -1, :, None, None], 0.0)
    scores = (queries @ keys.transpose(-1, -2)).mul_(head_dim**-0.5)
    scores = scores.view(num_sequences, num_kv_heads, num_shared, num_rows, -1)
    scores.masked_fill_(~visible[:, None, None], float("-inf"))
    attended = scores.softmax(dim=-1).flatten(2, 3) @ values.transpose(1, 2)
    attended = attended.view(num_sequences, num_kv_heads, num_shared, num_rows, head_dim)
    return attended.permute(0, 3, 1, 2, 4).reshape(num_sequences, num_rows, -1)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` (SwiGLU: Shazeer, 2020)."""
    return functional.silu(gate) * up


def relu(x: torch.Tensor) -> torch.Tensor:
    """``max(x, 0)``."""
    return functional.relu(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU (Hendrycks, Gimpel, 2016), the approximation with tanh."""
    return functional.gelu(x, approximate="tanh")


def erf_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU (Hendrycks, Gimpel, 2016), as it is defined."""
    return functional.gelu(x)


def select_first(x: torch.Tensor, batch: PagedBatch, draw_rows: torch.Tensor) -> torch.Tensor:
    """Rows of ``x``."""
    return x[draw_rows - batch.positions[draw_rows]]


def mean_pool(x: torch.Tensor, batch: PagedBatch, draw_rows: torch.Tensor) -> torch.Tensor:
    """The mean over tokens (Reimers, Gurevych, EMNLP'19, §3)."""
    firsts = (draw_rows - batch.positions[draw_rows]).tolist()
    means = [x[first : last + 1].mean(dim=0) for first, last in zip(firsts, draw_rows.tolist(), strict=True)]
    return torch.stack(means) if means else x[:0]


def route(x: torch.Tensor, num_chosen: int) -> torch.Tensor:
    """Softmax over the chosen experts alone, the ones with the largest numbers (Mixtral, 2024)."""
    chosen = x.topk(num_chosen, dim=-1)
    return torch.zeros_like(x).scatter(-1, chosen.indices, chosen.values.softmax(dim=-1))


def experts(
    x: torch.Tensor, routing: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Expert after expert, each over its own rows (Shazeer et al., ICLR'17)."""
    output = torch.zeros_like(x)
    for expert in range(len(gate)):
        rows = routing[:, expert].nonzero().flatten()
        activated = silu_mul(linear(x[rows], gate[expert]), linear(x[rows], up[expert]))
        output[rows] += linear(activated, down[expert]) * routing[rows, expert, None]
    return output


def copy_blocks(cache: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """All sources are read before any destination is written."""
    cache[destinations] = cache[sources]
