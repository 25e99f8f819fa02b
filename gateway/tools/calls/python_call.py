"""A call written as one of Python's, made a JSON object as it comes: ``get_weather(city="Paris", days=[1, 2])``.

Values are JSON, or literals, in which JSON's words for true, false and nothing may stand; what is neither is taken for
a string. An argument is told when it is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from gateway.tools.calls.call_reader import CallReader, Functions
from gateway.tools.values.json_value import JsonStep
from gateway.tools.values.python_literal import read_literal
from gateway.tools.values.word import NameWord

MAX_VALUE_CHARACTERS = 1 << 18
MAX_VALUE_DEPTH = 64
MAX_KEY_CHARACTERS = 256
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_KEY_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_OPEN, _CLOSE = "([{", ")]}"
_SPACE = " \t\n\r"


def open_python(character: str, functions: Functions) -> CallReader | None:
    """A call begins with the name of a function."""
    call = PythonCall(functions)
    return call if call.feed(character) is JsonStep.TAKEN else None


class PythonCall:
    """See `CallReader`."""

    def __init__(self, names: Collection[str]) -> None:
        self.name = ""
        self.is_known = False
        self.is_complete = False
        self._name = NameWord(names)
        self._key = ""
        self._keys: set[str] = set()
        self._value: list[str] = []
        self._depth = 0
        self._quote = ""  # of the string that is read
        self._is_escaped = False
        self._pieces: list[str] = []
        self._wants = _NAME

    def feed(self, character: str) -> JsonStep:
        """See `CallReader`."""
        if self._wants == _NAME:
            return self._in_name(character)
        if self._wants == _VALUE:
            return self._in_value(character)
        if character in _SPACE:
            return JsonStep.TAKEN
        if self._wants == _FIRST_KEY and character == ")":
            return self._close()
        return self._in_key(character)

    def run(self, text: str, begin: int) -> str:  # noqa: ARG002 (arguments are told as wholes)
        """See `CallReader`."""
        return ""

    def take_arguments(self) -> str:
        """See `CallReader`."""
        pieces, self._pieces = self._pieces, []
        return "".join(pieces)

    def _in_name(self, character: str) -> JsonStep:
        step = self._name.feed(character)
        if step is not JsonStep.BEHIND:
            return step
        if character != "(":
            return JsonStep.WRONG
        self.name, self.is_known = self._name.text, True
        self._pieces.append("{")
        self._wants = _FIRST_KEY
        return JsonStep.TAKEN

    def _in_key(self, character: str) -> JsonStep:
        if character == "=" and self._key and self._key not in self._keys:
            self._wants = _VALUE
            return JsonStep.TAKEN
        if character not in _KEY_CHARACTERS or len(self._key) == MAX_KEY_CHARACTERS:
            return JsonStep.WRONG
        self._key += character
        self._wants = _KEY
        return JsonStep.TAKEN

    def _in_value(self, character: str) -> JsonStep:
        if not self._quote and not self._depth and character in ",)":
            return self._end_value(character)
        self._value.append(character)
        if len(self._value) > MAX_VALUE_CHARACTERS:
            return JsonStep.WRONG
        if self._quote:
            self._in_string(character)
        elif character in "'\"":
            self._quote = character
        elif character in _OPEN:
            self._depth += 1
        elif character in _CLOSE:
            self._depth -= 1
        return JsonStep.TAKEN if 0 <= self._depth <= MAX_VALUE_DEPTH else JsonStep.WRONG

    def _in_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == self._quote:
            self._quote = ""

    def _end_value(self, character: str) -> JsonStep:
        value = _as_json("".join(self._value).strip(_SPACE))
        self._pieces.append(f"{', ' if self._keys else ''}{json.dumps(self._key)}: {value}")
        self._keys.add(self._key)
        self._key, self._value = "", []
        if character == ")":
            return self._close()
        self._wants = _KEY
        return JsonStep.TAKEN

    def _close(self) -> JsonStep:
        self._pieces.append("}")
        self.is_complete = True
        return JsonStep.LAST


def _as_json(text: str) -> str:
    for read in (json.loads, read_literal):
        try:
            return _written(read(text))
        except (ValueError, TypeError, RecursionError):
            continue  # not of this kind, or a value that JSON has not
    return _written(text)


def _written(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    is_sent = _HALF_CHARACTER.search(text) is None  # half a character cannot be
    return text if is_sent else json.dumps(value, allow_nan=False)


_NAME = "name"
_FIRST_KEY = "first key"
_KEY = "key"
_VALUE = "value"
