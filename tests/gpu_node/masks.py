"""Masks of draws (`Draw.allowed`): by the tokens that they allow, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterable


def mask_of(token_ids: Iterable[int]) -> bytes:
    """As long as it has to be."""
    tokens = [*token_ids]
    mask = bytearray(max(tokens) // 8 + 1)
    for token in tokens:
        mask[token // 8] |= 1 << token % 8
    return bytes(mask)


def random_mask(numbers: random.Random, vocab_size: int) -> bytes:
    """One token, few, half of them, or all but one; shorter than the vocabulary, as long, or with more bits behind."""
    tokens = range(vocab_size)
    match numbers.choice(["one", "few", "half", "most", "beginning", "behind"]):
        case "one":
            return mask_of([numbers.choice(tokens)])
        case "few":
            return mask_of(numbers.choices(tokens, k=5)) + bytes(numbers.choice([0, 3]))
        case "half":
            return mask_of(numbers.sample(tokens, (vocab_size + 1) // 2))
        case "most":
            return mask_of({*tokens} - {numbers.choice(tokens)} or tokens)
        case "beginning":
            return mask_of(range(numbers.randint(1, vocab_size)))
        case _:  # of rows that are longer than the vocabulary, where a model has padding
            return mask_of([numbers.choice(tokens), *range(vocab_size, vocab_size + 40)])
