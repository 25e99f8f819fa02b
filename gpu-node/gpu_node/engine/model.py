"""What bookkeeping knows of the model that an executor has loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in an executor, with the KV blocks that it has there."""

    name: str
    num_blocks: int
    block_size: int
    """Tokens a block."""
    block_bytes: int
    """Keys and values of one block, all layers together."""
    max_model_len: int
    """Most tokens of a sequence, prompt and output together."""
    vocab_size: int
    eos_token_ids: frozenset[int]
