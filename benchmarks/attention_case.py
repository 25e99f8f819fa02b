"""What paged_attention.py measures: the attention of a model, for sequences of equal length, and numbers for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

COLD_BYTES = 128 << 20  # more than any cache holds
BFLOAT16_BYTES = 2


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention of a model."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * BFLOAT16_BYTES


SHAPES: Mapping[str, Heads] = {"smollm2": Heads(9, 3, 64), "llama3": Heads(32, 8, 128)}


@dataclass(frozen=True, slots=True)
class Case:
    """Sequences of equal length; of each, the last ``num_rows`` tokens attend to all before them and themselves."""

    heads: Heads
    batch: int
    context: int
    num_rows: int

    @property
    def num_copies(self) -> int:
        """Layers, each with keys and values of its own."""
        return max(1, -(-COLD_BYTES // self.kv_bytes))

    @property
    def kv_bytes(self) -> int:
        """Of one layer."""
        return self.batch * self.context * self.heads.token_bytes

    @property
    def flops(self) -> int:
        """Of one layer: a product with a key and one with a value for each head, row and token that it sees."""
        start = self.context - self.num_rows
        attended = (start + 1 + self.context) * self.num_rows // 2
        return 4 * self.batch * attended * self.heads.num_heads * self.heads.head_dim


class Numbers:
    """Queries [batch, rows, heads, head_dim], keys and values [batch, context, kv_heads, head_dim], bfloat16."""

    def __init__(self, case: Case) -> None:
        heads = case.heads
        self.q = _random(case.batch, case.num_rows, heads.num_heads, heads.head_dim)
        self.k = _random(case.batch, case.context, heads.num_kv_heads, heads.head_dim)
        self.v = _random(case.batch, case.context, heads.num_kv_heads, heads.head_dim)


def _random(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16).normal_()
