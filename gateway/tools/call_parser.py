"""The text of one output to texts and calls of functions, whatever pieces it comes in. No I/O, no clock.

- Nothing of a text is lost: what looked like a call and is none is text. Where a call turns out to be no JSON after its
  client was told of it, what comes from the fault on is text.
- White space around calls is no text; all other white space is.
- Text is held back only while it may be the beginning of a call, or white space before one.
- How the text is cut into pieces changes only how texts and arguments are cut.
"""

from __future__ import annotations

import re

from gateway.tools.calls.call_reader import CallReader, Functions
from gateway.tools.events import Arguments, CallBegin, Text, ToolEvent, joined
from gateway.tools.notation import Notation
from gateway.tools.values.json_value import JsonStep

_SPACE = " \t\n\r"
_SPACES = re.compile(f"[{_SPACE}]+")


class CallParser:
    """The state of one output."""

    def __init__(self, notation: Notation, functions: Functions) -> None:
        self.num_calls = 0
        self.has_whole_calls = False
        """There are calls, and nothing of the last one is missing."""
        self._notation = notation
        self._functions = functions
        self._marks = (notation.begin, *filter(None, (*(notation.section or ()), notation.list_end)))
        self._plain = re.compile(rf"(?:[{_SPACE}]*+[^{_SPACE}{re.escape(notation.begin[0])}]++)++")
        self._wants = _TEXT
        self._held: list[str] = []  # white space, or what may be the beginning of a call, or what stands behind one
        self._marker = ""  # as much of a marker as the end of the held text has
        self._call: CallReader | None = None  # the one that is read
        self._is_told = False  # the client knows of the call that is read
        self._has_text = False
        self._events: list[ToolEvent] = []

    def feed(self, text: str) -> list[ToolEvent]:
        """What the next piece of the output shows."""
        position = 0
        while position < len(text):
            run = self._run(text, position)
            if not run:
                self._take(text[position])
            position += len(run) or 1
        return self._taken()

    def passes(self, text: str) -> bool:
        """Whether the next piece is text as it is, with nothing held back before it or of it: then it is taken.

        The quick way of most pieces of most outputs; `feed` would give it as one `Text`.
        """
        if self._wants != _TEXT or self._held or (self._notation.is_bare and not self._has_text):
            return False
        if self._plain.fullmatch(text) is None:
            return False
        self._has_text = True
        return True

    def end(self) -> list[ToolEvent]:
        """What was held back; the output is over."""
        is_behind_call = self._wants in (_END_MARKER, _BEHIND) or (self._is_told and self._reader.is_complete)
        if not is_behind_call and not (self.num_calls and self._is_space_held):
            self._say()
        return self._taken()

    @property
    def _reader(self) -> CallReader:
        assert self._call is not None, "a call is read"
        return self._call

    @property
    def _is_space_held(self) -> bool:
        return not "".join(self._held).strip(_SPACE)

    def _taken(self) -> list[ToolEvent]:
        if self._is_told:
            self._tell_arguments()
        events, self._events = self._events, []
        return joined(events)

    def _run(self, text: str, begin: int) -> str:
        """Take what is nothing but text, or nothing but a piece of a string in a call: the quick way."""
        if self._wants == _IN_CALL:
            run = self._reader.run(text, begin)
            if run and (not self._is_told or self._reader.is_complete):
                self._held.append(run)
            return run
        if self._wants != _TEXT or self._marker or (self._notation.is_bare and not self._has_text):
            return ""
        found = self._plain.match(text, begin)
        if found is not None:
            self._held.append(found[0])
            self._say()
            return found[0]
        space = _SPACES.match(text, begin)
        if space is None:
            return ""
        self._held.append(space[0])
        return space[0]

    def _take(self, character: str) -> None:
        if self._wants == _TEXT:
            self._in_text(character)
        elif self._wants == _IN_CALL:
            self._in_call(character)
        elif self._wants == _END_MARKER:
            self._in_end_marker(character)
        elif character in _SPACE:
            self._held.append(character)
        elif self._wants == _LIST and character == "[":
            self._held.append(character)
            self._wants = _CALL
        elif self._wants == _BEHIND:
            self._behind(character)
        elif self._wants != _CALL or not self._open(character):
            self._none(character)

    # --- text -------------------------------------------------------------------------------------------------------

    def _in_text(self, character: str) -> None:
        if any(mark.startswith(self._marker + character) for mark in self._marks):
            self._marker += character
            self._held.append(character)
            if self._marker in self._marks:
                self._marked()
        elif self._marker:
            self._none(character)
        elif not (self._notation.is_bare and not self._has_text and self._open_bare(character)):
            self._held.append(character)
            if character not in _SPACE:
                self._say()

    def _marked(self) -> None:
        """A mark is whole: a call follows, or it is one around all calls, which is no text where there are any."""
        if self._marker == self._notation.begin:
            self._wants = _LIST if self._notation.is_list else _CALL
        elif self.num_calls:
            self._held = []  # white space before it stands behind a call
        self._marker = ""

    def _none(self, character: str) -> None:
        """What is held is no call after all; the character may begin one."""
        self._say()
        self._marker = ""
        self._wants = _TEXT
        self._in_text(character)

    def _say(self) -> None:
        """What is held is text."""
        if self._held:
            self._has_text = True
            self._events.append(Text("".join(self._held)))
            self._held = []

    # --- a call -----------------------------------------------------------------------------------------------------

    def _open_bare(self, character: str) -> bool:
        """Whether a call, or a list of them, begins with this, and no mark."""
        if not self._notation.is_list:
            return self._open(character)
        if character == "[":
            self._held.append(character)
            self._wants = _CALL
        return character == "["

    def _open(self, character: str) -> bool:
        """Whether a call begins with this."""
        readers = (opener(character, self._functions) for opener in self._notation.openers)
        self._call = next((reader for reader in readers if reader is not None), None)
        if self._call is None:
            return False
        self._held.append(character)
        self._wants = _IN_CALL
        return True

    def _in_call(self, character: str) -> None:
        call = self._reader
        was_complete = call.is_complete
        step = call.feed(character)
        if step is JsonStep.WRONG:
            self._broken(character)
            return
        if call.is_known and not self._is_told:
            self._is_told = True
            self.has_whole_calls = False
            self._held = []
            self.num_calls += 1
            self._events.append(CallBegin(call.name))
        elif not self._is_told or was_complete:
            self._held.append(character)
        if self._is_told and call.is_complete:
            self._tell_arguments()
            self.has_whole_calls = True
        if step is JsonStep.LAST:
            self._is_told = False
            self._held = []
            self._wants = self._behind_calls

    @property
    def _behind_calls(self) -> str:
        if self._notation.end:
            return _END_MARKER
        return _BEHIND if self._notation.is_list or self._notation.is_bare else _TEXT

    def _broken(self, character: str) -> None:
        """The call ends at a character that it cannot have; one that only lacks its brace is taken for whole."""
        is_whole = self._is_told and self._reader.is_complete and self._is_space_held
        if self._is_told:
            self._tell_arguments()
        self._is_told = False
        if is_whole and self._notation.end:
            self._wants = _END_MARKER
            self._in_end_marker(character)
        else:
            self._none(character)

    def _tell_arguments(self) -> None:
        arguments = self._reader.take_arguments()
        if arguments:
            self._events.append(Arguments(arguments))

    # --- behind a call ----------------------------------------------------------------------------------------------

    def _in_end_marker(self, character: str) -> None:
        end = self._notation.end
        if end.startswith(self._marker + character):
            self._marker += character
            self._held.append(character)
            if self._marker == end:
                self._held, self._marker = [], ""
                self._wants = _TEXT
        elif character in _SPACE and not self._marker:
            self._held.append(character)
        elif not (self._notation.is_run and not self._marker and self._open(character)):
            # there is no end marker; what looked like it, and white space, may stand before the next call
            rest = [*self._held, character]
            self._held, self._marker = [], ""
            self._wants = _TEXT
            for one in rest:
                self._take(one)

    def _behind(self, character: str) -> None:
        """Of a notation whose calls have no end of their own: another one, or the end of the list."""
        notation = self._notation
        if notation.is_list and character == "]":
            self._held = []
            self._wants = _TEXT
        elif character == ("," if notation.is_list else ";"):
            self._held.append(character)
            self._wants = _CALL
        elif notation.is_list or not (notation.is_bare and self._open(character)):
            self._none(character)


_TEXT = "text"
_LIST = "list"
_CALL = "call"
_IN_CALL = "in a call"
_END_MARKER = "end marker"
_BEHIND = "behind"
