"""What tells thoughts and answer of one output apart, whatever a family's marks are."""

from __future__ import annotations

from typing import Protocol

from gateway.reasoning.harmony import HarmonySplitter
from gateway.reasoning.marks import HARMONY, ThoughtReading
from gateway.reasoning.splitter import ReasoningSplitter, Split


class OutputSplitter(Protocol):
    """The state of one output."""

    @property
    def has_thoughts(self) -> bool:
        """Thoughts were begun, be they empty."""

    @property
    def is_past_thoughts(self) -> bool:
        """None are expected any more."""

    def passes(self, text: str) -> bool:
        """Whether the next piece is the answer's, as it is; then it need not be fed."""

    def feed(self, text: str) -> list[Split]:
        """What the next piece shows, in its order: thoughts behind a part of the answer begin another split."""

    def end(self) -> list[Split]:
        """What was held back; the output is over."""


def splitter_of(reading: ThoughtReading) -> OutputSplitter:
    """A new one, for the model's marks."""
    return HarmonySplitter(reading) if reading.marks is HARMONY else ReasoningSplitter(reading)
