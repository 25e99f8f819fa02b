"""What a mask lets a draw give (`Draw.allowed`), token by token."""

from __future__ import annotations

import torch


def allowed_tokens(mask: bytes, vocab_size: int) -> torch.Tensor:
    """Bool [vocabulary]: whether ``mask`` allows a token; its bits behind the vocabulary are not looked at.

    `ValueError` where it allows none.
    """
    octets = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
    bits = (octets[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten()[:vocab_size]
    allowed = torch.zeros(vocab_size, dtype=torch.bool)
    allowed[: len(bits)] = bits.bool()
    if not bool(allowed.any()):
        raise ValueError(f"a mask allows no token of a vocabulary of {vocab_size}")
    return allowed
