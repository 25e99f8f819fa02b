"""What a structured output is guessed to go on with: what its language leaves, as it was written there before.

Each guess stands where those before it lead, so there may be few tokens to guess among. The one that alone may come is
certain. Else it is what came at this place the last time; at a place that is new, where one text alone can follow, the
longest token that this begins with. Where tokens are guessed by what followed in the text before, too, the likelier of
both is taken, and such a guess is dropped where the language forbids it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpu_node.engine.border.grammar import Matcher
from gpu_node.engine.measures.acceptance import AcceptanceRates
from gpu_node.engine.requests.drafter import Drafter
from gpu_node.engine.requests.language_habits import LanguageHabits, place_of
from shared.config.engines.speculation import MAX_DRAFT_TOKENS

FORCED_TIMES = 0
"""In the place of `Habit.num_times`, of a guess at a place that is new."""


class _Guess(NamedTuple):
    token_id: int
    chance: float
    """That it holds, if those before it do."""
    num_times: int | None = None
    """What it rests on, as `Habit.num_times`; None where that is no habit."""


class _Link(NamedTuple):
    guess: _Guess
    behind: Matcher


class StructuredDrafter:
    """Of one sequence, as `gpu_node.engine.requests.drafter.Drafter`. What it guesses, its language allows.

    Holds nothing that cannot be made anew but rates and habits, and these are a matter of speed alone.
    """

    def __init__(
        self, matcher: Matcher, habits: LanguageHabits, of_model: AcceptanceRates, copying: Drafter | None = None
    ) -> None:
        """``matcher`` is the sequence's, which takes each of its tokens before this does. ``habits``: of its language.

        ``copying`` guesses what followed in the text before, if given.
        """
        self._matcher = matcher
        self._habits = habits
        self._rates = AcceptanceRates(of_model)
        self._copying = copying
        self._copied: list[tuple[int, float]] = []
        self._look()

    @property
    def has_guess(self) -> bool:
        """Whether it would guess anything now."""
        return bool(self._chain) or self._grow()

    def take(self, token_ids: Sequence[int]) -> None:
        """The text has one token more, its last, and the matcher has taken it."""
        token_id = token_ids[-1]
        if self._first is not None and self._first.num_times is not None:
            self._rates.observe(self._first.num_times, holds=self._first.token_id == token_id)
        if self._key:
            self._habits.note(self._key, token_id)
        if self._copying is not None:
            self._copying.take(token_ids)
            tokens = self._copying.draft(token_ids, MAX_DRAFT_TOKENS)
            self._copied = list(zip(tokens, self._copying.rates(len(tokens)), strict=True))
        self._look()

    def draft(self, _: Sequence[int], most: int) -> list[int]:
        """At most so many tokens that may follow what it has taken."""
        while len(self._chain) < most and self._grow():
            pass
        return [link.guess.token_id for link in self._chain[:most]]

    def masks(self, count: int) -> list[bytes]:
        """What may be drawn behind each of so many guesses, which were drafted (`Draw.allowed`)."""
        return [link.behind.allowed for link in self._chain[:count]]

    def chances(self, most: int, least: float = 0.0) -> list[float]:
        """For each of so many guesses, how likely it holds, and all before it; while that is ``least`` or more.

        None of them ends the output: a row behind it could draw nothing.
        """
        chance, found = 1.0, []
        for number in range(most):
            if number == len(self._chain) and not self._grow():
                break
            chance *= self._chain[number].guess.chance
            if chance < least:
                break
            found.append(chance)
        return found

    def _look(self) -> None:
        """Where the output stands now."""
        self._chain: list[_Link] = []
        self._has_end = self._matcher.is_over or bool(self._matcher.error)
        self._first, self._key = (None, b"") if self._has_end else self._guess_at(self._matcher)

    def _grow(self) -> bool:
        """One guess more; False where there is none."""
        if self._has_end:
            return False
        at = self._chain[-1].behind if self._chain else self._matcher
        guess = self._guess_at(at)[0] if self._chain else self._first
        guess = max(filter(None, (guess, self._copied_at(at))), key=lambda one: one.chance, default=None)
        behind = None if guess is None else at.ahead(guess.token_id)
        if guess is None or behind is None or behind.is_over or behind.error:
            self._has_end = True
            return False
        self._chain.append(_Link(guess, behind))
        return True

    def _guess_at(self, at: Matcher) -> tuple[_Guess | None, bytes]:
        """By the language and its habits, and the name of the place, where anything is learnt of it."""
        place = place_of(at.allowed)
        if place.only is not None:
            return _Guess(place.only, 1.0), b""
        if not place.key:
            return None, b""
        habit = self._habits.find(place.key)
        if habit is not None:
            return _Guess(habit.token_id, self._rates.rate(habit.num_times), habit.num_times), place.key
        forced = at.forced_token
        if forced is None:
            return None, place.key
        return _Guess(forced, self._rates.rate(FORCED_TIMES), FORCED_TIMES), place.key

    def _copied_at(self, at: Matcher) -> _Guess | None:
        """What followed in the text before, where all guesses up to here are that, and the language allows it."""
        number = len(self._chain)
        if number >= len(self._copied):
            return None
        if any(link.guess.token_id != token for link, (token, _) in zip(self._chain, self._copied, strict=False)):
            return None
        token_id, chance = self._copied[number]
        return _Guess(token_id, chance) if _allows(at.allowed, token_id) else None


def _allows(mask: bytes, token_id: int) -> bool:
    return token_id // 8 < len(mask) and bool(mask[token_id // 8] >> token_id % 8 & 1)
