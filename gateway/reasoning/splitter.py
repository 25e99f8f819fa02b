"""The text of one output to thoughts and answer, whatever pieces it comes in. No I/O, no clock.

- Thoughts come first or not at all: what looks like a mark later is text, and so is an end of what has not begun.
- White space around marks belongs to neither; all other white space is kept.
- Text is held back only while it may be the beginning of a mark, or white space before one.
- How the text is cut into pieces changes only how thoughts and answer are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gateway.reasoning.marks import ThoughtReading

_SPACE = " \t\n\r"


class _State(Enum):
    BEGIN = auto()
    """Nothing has come but white space, or what may be the first mark."""
    OPENED = auto()
    """Among thoughts, of which there are none yet."""
    THOUGHTS = auto()
    CLOSED = auto()
    """Behind them; nothing of the answer has come."""
    ANSWER = auto()


_KEEPS_SPACE = (_State.BEGIN, _State.THOUGHTS)
"""White space that comes then may be text."""


@dataclass(frozen=True, slots=True)
class Split:
    """What a piece of the output adds to either, thoughts before the answer; both may be empty."""

    thoughts: str = ""
    answer: str = ""


class ReasoningSplitter:
    """The state of one output."""

    def __init__(self, reading: ThoughtReading) -> None:
        self._marks = reading.marks
        self._state = _State.OPENED if reading.is_open else _State.BEGIN
        self._held = ""
        self._spaces: list[str] = []  # what is held where that is white space alone: a model may write it without end
        self.has_thoughts = reading.is_open
        """Thoughts were begun, be they empty."""

    @property
    def is_past_thoughts(self) -> bool:
        """None come any more: they have ended, or the output began without."""
        return self._state in (_State.CLOSED, _State.ANSWER)

    def passes(self, text: str) -> bool:  # noqa: ARG002 (no text is a mark any more)
        """See `OutputSplitter`."""
        return self._state is _State.ANSWER

    def feed(self, text: str) -> list[Split]:
        """What the next piece shows."""
        if self._state is _State.ANSWER:  # most of most outputs
            return [Split(answer=text)]
        is_held = bool(self._held or self._spaces)
        if self._state is _State.THOUGHTS and not is_held and self._is_plain(text):  # most of what is thought
            return [Split(thoughts=text)]
        if self._state in _KEEPS_SPACE and not self._held and not text.strip(_SPACE):
            self._spaces.append(text)
            return [Split()]
        self._held = self._all_held() + text
        split = self._read()
        if self._state in _KEEPS_SPACE and self._held and not self._held.strip(_SPACE):
            self._spaces, self._held = [self._held], ""
        return [split]

    def _all_held(self) -> str:
        held = "".join(self._spaces) + self._held
        self._spaces, self._held = [], ""
        return held

    def _read(self) -> Split:
        """What of all that is held is known."""
        thoughts = ""
        if self._state is _State.BEGIN:
            self._begin()
        if self._state is _State.OPENED:
            self._held = self._held.lstrip(_SPACE)
            if self._held and not self._may_end():
                self._state = _State.THOUGHTS
        if self._state in (_State.OPENED, _State.THOUGHTS):
            thoughts = self._think()
        return Split(thoughts, self._answer())

    def end(self) -> list[Split]:
        """What was held back; the output is over."""
        held = self._all_held()
        if self._state in (_State.OPENED, _State.THOUGHTS):
            return [Split(thoughts=held)]
        return [Split(answer="" if self._state is _State.CLOSED else held)]

    def _is_plain(self, text: str) -> bool:
        """It ends with neither white space nor what may begin a mark: `_num_kept` would keep all of it."""
        return self._marks.end[0] not in text and text[-1:] not in _SPACE

    def _begin(self) -> None:
        mark, text = self._marks.begin, self._held.lstrip(_SPACE)
        if text.startswith(mark):
            self._state, self._held = _State.OPENED, text[len(mark) :]
            self.has_thoughts = True
        elif not mark.startswith(text):
            self._state = _State.ANSWER

    def _may_end(self) -> bool:
        """Whether all that is held may be the beginning of the mark that ends thoughts, or is it."""
        return self._held.startswith(self._marks.end) or self._marks.end.startswith(self._held)

    def _think(self) -> str:
        """Thoughts up to their end, or to what may be it."""
        before, mark, behind = self._held.partition(self._marks.end)
        if mark:
            self._state, self._held = _State.CLOSED, behind
            return before.rstrip(_SPACE)
        kept = self._num_kept()
        thoughts, self._held = self._held[:kept], self._held[kept:]
        return thoughts

    def _num_kept(self) -> int:
        """Characters of what is held that are thoughts whatever comes: all but white space and a part of a mark."""
        text, mark = self._held, self._marks.end
        sizes = range(min(len(mark) - 1, len(text)), 0, -1)
        part = next((size for size in sizes if mark.startswith(text[-size:])), 0)
        return len(text[: len(text) - part].rstrip(_SPACE))

    def _answer(self) -> str:
        if self._state is _State.CLOSED:
            self._held = self._held.lstrip(_SPACE)
            if self._held:
                self._state = _State.ANSWER
        if self._state is not _State.ANSWER:
            return ""
        answer, self._held = self._held, ""
        return answer
