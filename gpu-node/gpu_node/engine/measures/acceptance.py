"""How often guesses hold, by how many tokens they rest on: of a sequence, around what others of its model say."""

from __future__ import annotations

from dataclasses import dataclass

PRIOR_RATE = 0.5
"""Before anything is known of a model."""
PRIOR_GUESSES = 2
"""What a sequence is told of others counts as so many guesses of its own; so does `PRIOR_RATE` for a model. Few: some
texts repeat themselves and some do not, so others say little."""
SEQUENCE_MEMORY, MODEL_MEMORY = 32, 1024
"""Guesses after which one weighs 1/e."""


@dataclass(slots=True)
class _Guesses:
    """Fading sums."""

    num_made: float = 0.0
    num_held: float = 0.0


class AcceptanceRates:
    """Of one sequence or, without ``others``, of one model."""

    def __init__(self, others: AcceptanceRates | None = None) -> None:
        self._others = others
        self._keep = 1 - 1 / (MODEL_MEMORY if others is None else SEQUENCE_MEMORY)
        self._guesses: dict[int, _Guesses] = {}

    def rate(self, num_tokens: int) -> float:
        """Of guesses that rest on so many tokens, the expected share that holds."""
        expected = PRIOR_RATE if self._others is None else self._others.rate(num_tokens)
        own = self._guesses.get(num_tokens)
        if own is None:
            return expected
        return (own.num_held + PRIOR_GUESSES * expected) / (own.num_made + PRIOR_GUESSES)

    def observe(self, num_tokens: int, *, holds: bool) -> None:
        """A guess that rests on so many tokens has been compared with what was drawn."""
        own = self._guesses.setdefault(num_tokens, _Guesses())
        own.num_made = self._keep * own.num_made + 1
        own.num_held = self._keep * own.num_held + holds
        if self._others is not None:
            self._others.observe(num_tokens, holds=holds)
