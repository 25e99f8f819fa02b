"""What a sequence is guessed to go on with: what followed its last tokens where they stood before.

A place is followed for as long as it holds, and another is looked for when it does not. Each token that is drawn is
compared with the guess for it, whether that was put into a step or not: so it is known what guesses would bring before
a step is spent on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_node.engine.measures.acceptance import AcceptanceRates
from gpu_node.engine.requests.ngram_index import MAX_NGRAM, Match, NgramIndex


class Drafter:
    """Of one sequence. Holds nothing that its tokens do not say but rates, so it may be made anew at any time."""

    def __init__(self, of_model: AcceptanceRates) -> None:
        self._rates = AcceptanceRates(of_model)
        self._index = NgramIndex()
        self._match: Match | None = None

    @property
    def has_guess(self) -> bool:
        """Whether it would guess anything now."""
        return self._match is not None

    def take(self, token_ids: Sequence[int]) -> None:
        """The text has one token more, its last."""
        match = self._match
        if match is not None:
            holds = token_ids[match.place] == token_ids[-1]
            self._rates.observe(match.num_tokens, holds=holds)
            match = Match(match.place + 1, min(match.num_tokens + 1, MAX_NGRAM)) if holds else None
        is_indexed = self._index.follow(token_ids)
        self._match = match or (self._index.find(token_ids) if is_indexed else None)

    def draft(self, token_ids: Sequence[int], most: int) -> list[int]:
        """At most so many tokens that may follow. Where a place runs into the end, guesses follow guesses."""
        if self._match is None:
            return []
        size, place = len(token_ids), self._match.place
        found: list[int] = []
        for behind in range(place, place + most):
            found.append(token_ids[behind] if behind < size else found[behind - size])
        return found

    def masks(self, count: int) -> list[bytes]:
        """What may be drawn behind each of so many guesses (`Draw.allowed`): any token."""
        return [b""] * count

    def rates(self, most: int) -> Iterator[float]:
        """For each of so many guesses, how likely it holds where those before it do."""
        if self._match is not None:
            for behind in range(most):
                yield self._rates.rate(min(self._match.num_tokens + behind, MAX_NGRAM))

    def chances(self, most: int, least: float = 0.0) -> list[float]:
        """For each of so many guesses, how likely it holds, and all before it; while that is ``least`` or more."""
        chance, found = 1.0, []
        for rate in self.rates(most):
            chance *= rate
            if chance < least:
                break
            found.append(chance)
        return found
