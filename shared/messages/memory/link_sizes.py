"""What two engines agree on before there is a link between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkSizes:
    """Of a link; blocks are cut as the sender's. Travels as it is, and in this order it is `LinkShape` of link.h."""

    num_layers: int
    block_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_slots: int
    """Tasks that may be under way; a power of two."""
    max_rows: int
    """Of a task."""
    max_sequences: int
    """Of a step."""
    max_blocks: int
    """Of all of them together."""
