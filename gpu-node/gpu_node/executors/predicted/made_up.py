"""Tokens that are made up where no model says how likely they are: by chance, from seed, choice and position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.counter import uniform

EndTokens = Callable[[Draw], Sequence[int]]
"""What may end the answer at this draw, the first before others; nothing while the answer is to go on."""


class MadeUpTokens:
    """Words, each as likely as any other, until something ends the answer."""

    def __init__(self, words: Sequence[int], vocab_size: int, ends: EndTokens) -> None:
        """``words``: ids of tokens, one at least, of a vocabulary of ``vocab_size``."""
        self._words = words
        self._word_ids = np.asarray(words)
        self._vocab_size = vocab_size
        self._ends = ends

    def token(self, draw: Draw) -> int:
        """An end where it is time for one, else a word; of what the draw's mask allows, and any of that where it
        allows no word. `ValueError` where it allows nothing.
        """
        ends = self._ends(draw)
        if draw.allowed:
            return self._allowed(draw, ends)
        return ends[0] if ends else self._words[_place(draw, len(self._words))]

    def _allowed(self, draw: Draw, ends: Sequence[int]) -> int:
        octets = np.frombuffer(draw.allowed, dtype=np.uint8)
        allowed = np.unpackbits(octets, count=self._vocab_size, bitorder="little").view(np.bool_)
        if not allowed.any():
            raise ValueError(f"a mask allows no token of a vocabulary of {self._vocab_size}")
        for end in ends:
            if end < self._vocab_size and allowed[end]:
                return end
        words = self._word_ids[allowed[self._word_ids]]
        found = words if len(words) else allowed.nonzero()[0]
        return int(found[_place(draw, len(found))])


def _place(draw: Draw, num_places: int) -> int:
    """One of so many, by chance."""
    return int(uniform(draw.sampling.seed, draw.position, draw.choice) * num_places)
