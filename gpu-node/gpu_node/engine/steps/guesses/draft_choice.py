"""How many guessed tokens each sequence has in a step: as many as let the step bring most tokens a second.

The rule is SmartSpec's (Liu et al., Optimizing Speculative Decoding for Serving Large Language Models Using Goodput,
2024, §4): tokens that are expected to be kept over the step's predicted time. There, one length for a whole batch is
chosen among a few; here each sequence has its own, and the best is found directly: guesses are taken in the order of
tokens per second of their own, until the next would bring less than the step does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_GAIN = 0.05
"""Of the step's tokens a second; below, the host's work for it is not worth it, and predictions are no better."""
LEAST_ROW_S = 1e-12
"""A row that is learnt to cost nothing is compared as if it cost this."""


@dataclass(frozen=True, slots=True)
class PlainStep:
    """The step as it is without guesses."""

    num_draws: int
    """Tokens that it brings."""
    step_s: float
    wait_s: float
    """What guesses cost once, however many."""

    def worth(self, row_s: float) -> float:
        """How likely a guess has to be kept to be worth a row that takes so long, were it the first."""
        whole_s = self.step_s + self.wait_s
        return row_s * self.num_draws / whole_s if whole_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A sequence that may have guesses."""

    chances: Sequence[float]
    """For each, how likely it is kept; falling."""
    row_s: float
    """What each adds to the step."""


def choose_drafts(plain: PlainStep, candidates: Sequence[DraftCandidate], most: int) -> list[int]:
    """How many guesses each candidate has, at most so many together; all 0 where they do not pay."""
    taken = [0] * len(candidates)
    if plain.num_draws == 0 or plain.step_s <= 0:
        return taken
    guesses = [(chance, one.row_s, number) for number, one in enumerate(candidates) for chance in one.chances]
    guesses.sort(key=lambda guess: (-guess[0] / max(guess[1], LEAST_ROW_S), guess[2]))
    tokens, seconds = float(plain.num_draws), plain.step_s + plain.wait_s
    for chance, row_s, number in guesses[:most]:
        if chance * seconds <= tokens * row_s:
            break
        tokens += chance
        seconds += row_s
        taken[number] += 1
    pays = tokens / seconds > (1 + LEAST_GAIN) * plain.num_draws / plain.step_s
    return taken if pays else [0] * len(candidates)
