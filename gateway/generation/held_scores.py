"""Logprobs go out with the text they belong to.

A token's score is passed on as soon as all its text is out, the character that it only begins included: so a client
that adds up the bytes of the tokens never has more than the text. Of a text that a stop string cuts, the tokens that
begin before the cut belong to the answer; those behind it are dropped with their text.
"""

from __future__ import annotations

from collections import deque

from gateway.openai.answers.delta import ScoredToken
from shared.messages.requests.token_logprob import TokenLogprob


class HeldScores:
    """The scores of one choice whose text is not out yet. Places are counted in characters from its beginning."""

    def __init__(self) -> None:
        self._held: deque[tuple[ScoredToken, int]] = deque()  # with the place where its text ends

    def add(self, token_id: int, score: TokenLogprob, begin: int, end: int) -> None:
        """The next token; its text is the characters ``begin`` to ``end``, those that it has only a part of included.

        A token without text has ``begin == end``.
        """
        self._held.append((ScoredToken(token_id, begin, score), end))

    def release(self, num_characters: int) -> tuple[ScoredToken, ...]:
        """Tokens whose text is out, now that so many characters are."""
        released = []
        while self._held and self._held[0][1] <= num_characters:
            released.append(self._held.popleft()[0])
        return tuple(released)

    def cut(self, num_characters: int) -> tuple[ScoredToken, ...]:
        """The answer ends after so many characters, before a stop string: tokens of which some text is out."""
        released = tuple(scored for scored, end in self._held if scored.text_offset < num_characters)
        self._held.clear()
        return released
