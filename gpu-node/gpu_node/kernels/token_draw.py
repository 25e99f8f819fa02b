"""A draw as devices are told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared.messages.requests.payload import Sampling

NOT_DRAWN = -1
"""In place of a drawn token: the logits are not finite."""


def cell_mark(cell: int) -> int:
    """What stands for the token in a cell, where a device expects a token id."""
    return -1 - cell


class TokenDraw(NamedTuple):
    """One draw of a step."""

    row: int
    """Of the step's logits."""
    sampling: Sampling
    position: int
    choice: int
    num_top: int | None
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    """Token ids or cell marks. Both are empty where no penalty asks for them."""
    allowed: bytes = b""
    """A bit a token, as in `Draw`; empty: any token."""
    is_mask_late: bool = False
    """It comes when the step is under way."""

    def mask(self, vocab_size: int) -> bytes:
        """``allowed``, as `mask_within`."""
        return mask_within(self.allowed, vocab_size)


def mask_within(allowed: bytes, vocab_size: int) -> bytes:
    """A mask without what lies behind the vocabulary. `ValueError` where that is something, and no token."""
    num_bytes, num_bits = divmod(vocab_size, 8)
    last = allowed[num_bytes : num_bytes + 1]
    within = allowed[:num_bytes] + bytes(byte & (1 << num_bits) - 1 for byte in last)
    if allowed and within == bytes(len(within)):
        raise ValueError(f"a mask allows no token of a vocabulary of {vocab_size}")
    return within
