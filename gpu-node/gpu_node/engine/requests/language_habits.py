"""What a model draws where a language leaves it little choice: mostly what it drew there the last time.

A place in a language is told by the set of tokens that may come next. Behind a key of a JSON object, say, there are
three ways to go on over a vocabulary, and a model takes the same one each time. All outputs of a language share what is
known of it, within a part of the caches (`Payload.partition`), since clients ask for many records of one schema.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

MAX_HABITS = 1024
"""Places of one language; the one that was met longest ago goes. They take some 200 KB."""
MAX_TIMES = 4
"""In a row that a token came at a place; more are not told apart."""
MAX_OPEN_TOKENS = 1024
"""Where more tokens may come, within a string, say, nothing is guessed, and nothing learnt."""
_KEY_BYTES = 16


class LanguagePlace(NamedTuple):
    """Where an output stands, as far as guesses tell."""

    only: int | None
    """The one token that may come; None where there are several."""
    key: bytes
    """Names the set of tokens that may come; empty where they are more than `MAX_OPEN_TOKENS`."""


class Habit(NamedTuple):
    """What came at a place."""

    token_id: int
    num_times: int
    """In a row, up to now; from 1 to `MAX_TIMES`."""


def place_of(allowed: bytes) -> LanguagePlace:
    """Of the tokens that may come next, as in `Draw.allowed`: one at least."""
    bits = int.from_bytes(allowed, "little")
    num_allowed = bits.bit_count()
    if num_allowed == 1:
        return LanguagePlace(bits.bit_length() - 1, b"")
    if num_allowed > MAX_OPEN_TOKENS:
        return LanguagePlace(None, b"")
    return LanguagePlace(None, blake2b(allowed, digest_size=_KEY_BYTES).digest())


class LanguageHabits:
    """Of one language, as one model writes it."""

    def __init__(self) -> None:
        self._habits: OrderedDict[bytes, Habit] = OrderedDict()

    def find(self, key: bytes) -> Habit | None:
        """What came at the place of this name (`LanguagePlace.key`); None where it is new."""
        return self._habits.get(key)

    def note(self, key: bytes, token_id: int) -> None:
        """This token has come there."""
        last = self._habits.get(key)
        again = last is not None and last.token_id == token_id
        self._habits[key] = Habit(token_id, min(last.num_times + 1, MAX_TIMES) if last and again else 1)
        self._habits.move_to_end(key)
        if len(self._habits) > MAX_HABITS:
            self._habits.popitem(last=False)
