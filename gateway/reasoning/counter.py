"""How many tokens of one output are thoughts, exactly, whatever pieces they come in. No I/O, no clock.

Those are all up to the one that completes the mark behind the thoughts, that and the first mark included; white space
before the first mark too. Where an output ends among its thoughts, that is all of it. Of an output in messages
(`gateway.reasoning.harmony`), all up to the one that completes the header of what follows on thoughts.
"""

from __future__ import annotations

from gateway.reasoning.marks import ThoughtReading
from gateway.reasoning.output_splitter import splitter_of


class ThoughtCounter:
    """Is shown every token of an output, one by one."""

    def __init__(self, reading: ThoughtReading) -> None:
        self._splitter = splitter_of(reading)
        self._num_undecided = 0
        """Nothing has come but white space, or what may be the first mark."""
        self._num_found = 0

    def take(self, text: str) -> None:
        """What the next token adds to the text, before anything is held back or cut off for the client."""
        if self._splitter.is_past_thoughts:  # most of most outputs
            return
        self._num_undecided += 1
        self._splitter.feed(text)
        if self._splitter.has_thoughts:
            self._num_found += self._num_undecided
        if self._splitter.has_thoughts or self._splitter.is_past_thoughts:
            self._num_undecided = 0

    def found(self) -> int:
        """Tokens that have turned out to be thoughts since this was asked last."""
        num_found, self._num_found = self._num_found, 0
        return num_found
