"""A language over the words of the integer model, in which what may follow hangs on all that is there."""

from __future__ import annotations

from collections.abc import Sequence

from shared.messages.requests.payload import Constraint
from tests.gpu_node.bookkeeping import EOS

CONSTRAINT = Constraint("regex", "[0-6]{2,6}")
"""Stands for this language; the text is read by nobody."""
MIN_WORDS, MAX_WORDS = 2, 6
NUM_TOKENS = EOS + 1


class IntegerMatcher:
    """A word may follow unless the sum would leave 1 when it is divided by 3; an end, behind two words."""

    def __init__(self, words: Sequence[int] = (), fails_behind: int = MAX_WORDS + 1) -> None:
        self._words = list(words)
        self.fails_behind = fails_behind
        """So many words are too complex."""

    @property
    def error(self) -> str:
        return "too complex" if len(self._words) >= self.fails_behind else ""

    @property
    def is_over(self) -> bool:
        return len(self._words) == MAX_WORDS or EOS in self._words

    @property
    def allowed(self) -> bytes:
        assert not self.is_over
        mask = 0
        for word in range(7):
            mask |= ((sum(self._words) + word) % 3 != 1) << word
        mask |= (len(self._words) >= MIN_WORDS) << EOS
        return mask.to_bytes(-(-NUM_TOKENS // 8), "little")

    @property
    def forced_token(self) -> int | None:
        """The language forces nothing; for every other sum, a word is called so that may follow, as any guess may."""
        return 2 - sum(self._words) % 3 if sum(self._words) % 2 else None

    def ahead(self, token_id: int) -> IntegerMatcher:
        behind = IntegerMatcher(self._words, self.fails_behind)
        behind.take(token_id)
        return behind

    def take(self, token_id: int) -> None:
        assert self.allowed[token_id // 8] >> token_id % 8 & 1, "a device obeys masks"
        self._words.append(token_id)


class IntegerGrammar:
    """Compiled already."""

    is_ready = True
    problem = ""

    def matcher(self) -> IntegerMatcher:
        return IntegerMatcher()
