"""Where the last tokens of a text stood in it before: an index that grows with the text.

Prompt lookup (Saxena, 2023) guesses that a text goes on as it did where its last n tokens stood before. As LZ77's
coders do, places are chained by their last `MIN_NGRAM` tokens, newest first, and the few newest are compared further
back: a token costs one entry, whatever n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MIN_NGRAM, MAX_NGRAM = 2, 4
"""Tokens that a place has in common with the end of the text; more are not looked at."""
MAX_PLACES = 16
"""That one search compares."""
MAX_INDEXED_TOKENS = 1 << 13
"""Of a text when it is first seen, its last ones; what it grows by comes in addition. They take some 1.3 MB."""
TOKENS_AT_ONCE = 1 << 12
"""That one call indexes: a millisecond or two."""


class Match(NamedTuple):
    """A place where the last tokens of a text stood before."""

    place: int
    """Of the token that followed them."""
    num_tokens: int
    """In common, from `MIN_NGRAM` to `MAX_NGRAM`."""


class NgramIndex:
    """Of one text, which only grows."""

    def __init__(self) -> None:
        self._newest: dict[tuple[int, ...], int] = {}
        self._before: list[int] = []  # of each place from the first on, the next older one of its chain; -1: none
        self._first = -1  # place; -1 while nothing is indexed

    def follow(self, token_ids: Sequence[int]) -> bool:
        """Index what ``token_ids`` has more than at the last call; False where that is not all done yet."""
        if self._first < 0:
            self._first = max(MIN_NGRAM, len(token_ids) - MAX_INDEXED_TOKENS)
        begin = self._first + len(self._before)
        end = min(len(token_ids), begin + TOKENS_AT_ONCE)  # a place needs a token that followed
        for place in range(begin, end):
            ngram = tuple(token_ids[place - MIN_NGRAM : place])
            self._before.append(self._newest.get(ngram, -1))
            self._newest[ngram] = place
        return end == len(token_ids)

    def find(self, token_ids: Sequence[int]) -> Match | None:
        """The place with most tokens in common with the end of the text, the newest of equals. All is indexed."""
        size = len(token_ids)
        place = self._newest.get(tuple(token_ids[-MIN_NGRAM:]), -1)
        best: Match | None = None
        for _ in range(MAX_PLACES):
            if place < 0:
                break
            num_tokens, most = MIN_NGRAM, min(MAX_NGRAM, place)
            while num_tokens < most and token_ids[place - num_tokens - 1] == token_ids[size - num_tokens - 1]:
                num_tokens += 1
            if best is None or num_tokens > best.num_tokens:
                best = Match(place, num_tokens)
            if num_tokens == MAX_NGRAM:
                break
            place = self._before[place - self._first]
        return best
