"""An output of gpt-oss to thoughts and answer, whatever pieces it comes in. No I/O, no clock.

Such an output is messages: a header with a channel (``<|channel|>final<|message|>``), a text, a mark behind it, and
``<|start|>assistant`` before the next header. Texts of the channel *analysis* are thoughts. One that is for a function
(``to=functions.get`` in its header) is a call, whatever its channel: it stays in the answer, under the one header that
`gateway.tools.notation` knows. All others are the answer: *final*, and *commentary*, what the model says before a call.

- Nothing of a text is lost: what is no message is answer. White space before a header is no text.
- Text is held back only while it may be a mark or a header.
- How the output is cut into pieces changes only how thoughts and answer are cut, and never their order.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from itertools import groupby
from operator import itemgetter

from gateway.reasoning.marks import ThoughtReading
from gateway.reasoning.splitter import Split

CALL_HEADER = "<|channel|>commentary to=functions."
"""What the name of a function stands behind, in what is passed on of a call."""
MESSAGE = "<|message|>"
CALL_END = "<|call|>"
MAX_HEADER_CHARACTERS = 512  # a longer one is text

_HEADERS = ("<|start|>", "<|channel|>", MESSAGE, "to=")
"""What a header begins with; the prompt may have the first of it."""
_ENDS = re.compile(r"<\|(?:end|call|return|start|channel)\|>")
"""What a text ends before; the last two begin the next header."""
_LONGEST_END = len("<|channel|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTION = re.compile(r"\bto=functions\.([\w-]+)")
_SPACE = " \t\n\r"


class _Kind(Enum):
    BETWEEN = auto()
    """Before a message: nothing has come but white space, or what may be the beginning of a header."""
    HEADER = auto()
    THOUGHTS = auto()
    ANSWER = auto()
    CALL = auto()


class HarmonySplitter:
    """The state of one output; see `ReasoningSplitter`, which it is like."""

    def __init__(self, reading: ThoughtReading) -> None:
        self._kind = _Kind.THOUGHTS if reading.is_open else _Kind.BETWEEN
        self._held = ""
        self._spaces: list[str] = []  # what is held where that is white space alone: a model may write it without end
        self._found: list[tuple[bool, str]] = []  # texts in their order, and whether each is thought
        self.has_thoughts = reading.is_open
        """Thoughts were begun, be they empty."""
        self.is_past_thoughts = False
        """None are expected any more: the answer has begun, or a call."""

    def passes(self, text: str) -> bool:
        """Whether the next piece is the answer's, as it is; then nothing has to be done with it."""
        return self._kind is _Kind.ANSWER and not self._held and "<" not in text

    def feed(self, text: str) -> list[Split]:
        """What the next piece shows."""
        if self._kind is _Kind.BETWEEN and not self._held and not text.strip(_SPACE):
            self._spaces.append(text)
            return []
        self._held = self._all_held() + text
        while self._step():
            pass
        if self._kind is _Kind.BETWEEN and self._held and not self._held.strip(_SPACE):
            self._spaces, self._held = [self._held], ""
        return self._taken()

    def end(self) -> list[Split]:
        """What was held back; the output is over. A header that was cut is no text."""
        held = self._all_held()
        if self._kind is _Kind.THOUGHTS:
            self._think(held)
        elif self._kind is not _Kind.HEADER or not held.lstrip(_SPACE).startswith("<"):
            self._answer(held)
        return self._taken()

    def _all_held(self) -> str:
        held = "".join(self._spaces) + self._held
        self._spaces, self._held = [], ""
        return held

    def _taken(self) -> list[Split]:
        found, self._found = self._found, []
        splits: list[Split] = []
        for is_thought, run in groupby(found, itemgetter(0)):
            text = "".join(piece for _, piece in run)
            if is_thought:
                splits.append(Split(thoughts=text))
            else:
                thoughts = splits.pop().thoughts if splits else ""
                splits.append(Split(thoughts, text))
        return splits

    def _think(self, text: str) -> None:
        if text:
            self._found.append((True, text))

    def _answer(self, text: str) -> None:
        if text:
            self._found.append((False, text))

    def _step(self) -> bool:
        """Whether more of what is held can be read."""
        if self._kind is _Kind.BETWEEN:
            return self._begin()
        if self._kind is _Kind.HEADER:
            return self._read_header()
        return self._read_text()

    def _begin(self) -> bool:
        text = self._held.lstrip(_SPACE)
        if text.startswith(_HEADERS):
            self._kind = _Kind.HEADER
            return True
        if not any(header.startswith(text) for header in _HEADERS):
            self._say()
            return True
        return False

    def _say(self) -> None:
        """What is held is no header: it is answer."""
        self._kind, self.is_past_thoughts = _Kind.ANSWER, True

    def _read_header(self) -> bool:
        header, mark, behind = self._held.partition(MESSAGE)
        if not mark:
            if len(header) <= MAX_HEADER_CHARACTERS:
                return False
            self._say()
            self._answer(self._held)
            self._held = ""
            return False
        self._held = behind
        channel, function = _CHANNEL.search(header), _FUNCTION.search(header)
        if function is not None:
            self._kind, self.is_past_thoughts = _Kind.CALL, True
            self._answer(f"{CALL_HEADER}{function[1]}{MESSAGE}")
        elif channel is not None and channel[1] == "analysis":
            self._kind, self.has_thoughts = _Kind.THOUGHTS, True
        else:
            self._kind = _Kind.ANSWER
            self.is_past_thoughts |= channel is None or channel[1] != "commentary"
        return True

    def _read_text(self) -> bool:
        """Text up to the mark behind it, or to what may be one."""
        found = _ENDS.search(self._held)
        kept = self._num_kept() if found is None else found.start()
        (self._think if self._kind is _Kind.THOUGHTS else self._answer)(self._held[:kept])
        self._held = self._held[kept:]
        if found is None:
            return False
        if self._kind is _Kind.CALL:
            self._answer(CALL_END)
        self._kind = _Kind.BETWEEN
        if found[0] not in _HEADERS:
            self._held = self._held[len(found[0]) :]
        return True

    def _num_kept(self) -> int:
        """Characters of what is held that are text whatever comes: all but what may be the beginning of a mark."""
        begin = self._held.rfind("<", -_LONGEST_END)
        if begin < 0:
            return len(self._held)
        part = self._held[begin:]
        marks = ("<|end|>", CALL_END, "<|return|>", *_HEADERS[:2])
        return begin if any(mark.startswith(part) for mark in marks) else len(self._held)
