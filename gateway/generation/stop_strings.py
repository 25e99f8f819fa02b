"""Stop strings across the borders of tokens.

Text ends before the stop string that is completed first; of two completed by the same character, the longer one.
This does not depend on how the text is cut into pieces. Text is held back only while it may be the beginning of a
stop string, and each character costs amortised constant time a stop string (Knuth-Morris-Pratt).
"""

from __future__ import annotations

from collections.abc import Sequence


class StopPattern:
    """One of them, with what is known of it before there is a text: worked out once, for all choices of a call."""

    def __init__(self, text: str) -> None:
        assert text, "an empty stop string would match everywhere"
        self.text = text
        self._fallback = [0]  # for each length matched, the length of the longest beginning that is also its end
        for character in text[1:]:
            self._fallback.append(self.after(self._fallback[-1], character))

    def after(self, length: int, character: str) -> int:
        """How much of it is spelt behind this character, where ``length`` of it was before."""
        while length and self.text[length] != character:
            length = self._fallback[length - 1]
        return length + 1 if self.text[length] == character else 0


class _Prefix:
    """How much of one stop string the end of the text spells."""

    def __init__(self, stop: StopPattern) -> None:
        self._stop = stop
        self.length = 0

    @property
    def is_complete(self) -> bool:
        return self.length == len(self._stop.text)

    def feed(self, character: str) -> None:
        """Take the next character of the text."""
        self.length = self._stop.after(self.length, character)


class StopMatcher:
    """Passes the text of one answer through until a stop string is complete. Not fed again after that."""

    def __init__(self, stops: Sequence[StopPattern]) -> None:
        self._prefixes = [_Prefix(stop) for stop in stops]
        self._held = ""
        self.completed: str | None = None
        """The stop string that the text ended before."""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text that may go out now, and whether a stop string was completed."""
        if not self._prefixes:
            return text, False
        text = self._held + text
        for position in range(len(self._held), len(text)):
            for prefix in self._prefixes:
                prefix.feed(text[position])
            complete = [prefix.length for prefix in self._prefixes if prefix.is_complete]
            if complete:
                border = position + 1 - max(complete)
                self._held, self.completed = "", text[border : position + 1]
                return text[:border], True
        border = len(text) - max(prefix.length for prefix in self._prefixes)
        self._held = text[border:]
        return text[:border], False

    def flush(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held
