"""A call whose function stands before its arguments, which are a JSON object: ``get[ARGS]{"city": "Paris"}``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.tools.calls.call_reader import CallOpener, CallReader, Functions
from gateway.tools.values.json_value import JsonStep, JsonValue
from gateway.tools.values.word import NAME_CHARACTERS, NameWord, Word

_SPACE = " \t\n\r"


def named_call(*separators: str, before: str = "", id_mark: str = "") -> CallOpener:
    """Calls with one of ``separators`` between name and arguments, none of which begins another.

    ``before`` stands before the name. ``id_mark``: behind the name there may be this and an id of the model's making.
    """

    def open_call(character: str, functions: Functions) -> CallReader | None:
        call = NamedCall(functions, separators, before, id_mark)
        return call if call.feed(character) is JsonStep.TAKEN else None

    return open_call


class NamedCall:
    """See `CallReader`."""

    def __init__(self, names: Collection[str], separators: Sequence[str], before: str, id_mark: str) -> None:
        self.name = ""
        self.is_known = False
        self.is_complete = False
        self._separators = separators
        self._id_mark = id_mark
        self._name = NameWord(names)
        self._mark = Word(before)
        self._value = JsonValue()
        self._pieces: list[str] = []
        self._wants = _BEFORE if before else _NAME

    def feed(self, character: str) -> JsonStep:
        """See `CallReader`."""
        if self._wants == _VALUE:
            return self._in_value(character)
        if self._wants == _NAME:
            return self._in_name(character)
        if self._wants == _ID and character in NAME_CHARACTERS:
            return JsonStep.TAKEN
        if self._wants == _ID:
            self._wants, self._mark = _SEPARATOR, Word(*self._separators)
        step = self._mark.feed(character)
        if step is JsonStep.LAST:
            self._wants = self._behind_mark()
            return JsonStep.TAKEN
        return step

    def run(self, text: str, begin: int) -> str:
        """See `CallReader`."""
        run = self._value.run(text, begin) if self._wants == _VALUE else ""
        if run:
            self._pieces.append(run)
        return run

    def take_arguments(self) -> str:
        """See `CallReader`."""
        pieces, self._pieces = self._pieces, []
        return "".join(pieces)

    def _behind_mark(self) -> str:
        if self._wants == _BEFORE:
            return _NAME
        return _ID if self._mark.text == self._id_mark else _VALUE

    def _in_name(self, character: str) -> JsonStep:
        step = self._name.feed(character)
        if step is not JsonStep.BEHIND:
            return step
        self.name = self._name.text
        self._wants = _SEPARATOR
        self._mark = Word(*filter(None, (*self._separators, self._id_mark)))
        return self.feed(character)

    def _in_value(self, character: str) -> JsonStep:
        if not self.is_known:
            if character in _SPACE:
                return JsonStep.TAKEN
            if character != "{":
                return JsonStep.WRONG
            self.is_known = True
        step = self._value.feed(character)
        if step is not JsonStep.WRONG:
            self._pieces.append(character)
            self.is_complete = step is JsonStep.LAST
        return step


_BEFORE = "before the name"
_NAME = "name"
_SEPARATOR = "separator"
_ID = "id"
_VALUE = "value"
