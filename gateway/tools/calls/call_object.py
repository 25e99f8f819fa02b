"""The JSON object of one call, read character by character.

It has a name, which the client knows, and arguments, an object, in either order; it may have a type and an id besides,
and nothing else. What is not like that is no call, which is mostly seen at once: a text that is held back until it is
known to be none is late for its client.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.tools.calls.call_reader import CallReader, Functions
from gateway.tools.values.json_value import JsonStep, JsonValue

_NAME = "name"
_ARGUMENTS = ("arguments", "parameters")
_KEYS = (_NAME, *_ARGUMENTS, "type", "id")
_SPACE = " \t\n\r"


def open_object(character: str, functions: Functions) -> CallReader | None:
    """A call begins with the object's brace."""
    return CallObject(functions) if character == "{" else None


class CallObject:
    """See `CallReader`. Fed with what comes behind the opening brace."""

    def __init__(self, names: Collection[str]) -> None:
        self.name = ""
        """Of the function; ``""`` until it is known."""
        self._arguments: list[str] = []  # pieces that have come, and have not been taken away
        self._has_arguments = False  # they have begun
        self.is_complete = False
        """There is a name, and all its arguments."""
        self._names = names
        self._wants = _KEY_OR_END
        self._word = ""  # of a key or a name, so far
        self._seen: set[str] = set()
        self._key = ""
        self._value = JsonValue()
        self._are_arguments_whole = False

    @property
    def is_known(self) -> bool:
        """The client can be told that there is a call."""
        return bool(self.name) and self._has_arguments

    def run(self, text: str, begin: int) -> str:
        """Take as much of the text, from ``begin`` on, as cannot be the end of anything; often nothing."""
        run = self._value.run(text, begin) if self._wants == _VALUE else ""
        if run and self._key == "arguments":
            self._arguments.append(run)
        return run

    def take_arguments(self) -> str:
        """See `CallReader`."""
        pieces, self._arguments = self._arguments, []
        return "".join(pieces)

    def feed(self, character: str) -> JsonStep:
        """Take the next character; never `JsonStep.BEHIND`."""
        step = self._feed(character)
        self.is_complete = bool(self.name) and self._are_arguments_whole
        return step

    def _feed(self, character: str) -> JsonStep:
        wants = self._wants
        if wants == _IN_KEY:
            return self._in_key(character)
        if wants == _IN_NAME:
            return self._in_name(character)
        if wants == _VALUE:
            return self._in_value(character)
        if character in _SPACE:
            return JsonStep.TAKEN
        if wants == _COLON:
            self._wants, self._value = _BEFORE_NAME if self._key == _NAME else _VALUE, JsonValue()
            return JsonStep.TAKEN if character == ":" else JsonStep.WRONG
        if wants == _BEFORE_NAME:
            self._wants, self._word = _IN_NAME, ""
            return JsonStep.TAKEN if character == '"' else JsonStep.WRONG
        return self._between_fields(character)

    def _between_fields(self, character: str) -> JsonStep:
        if character == "}" and self._wants != _KEY:
            return self._end()
        if character == "," and self._wants == _COMMA_OR_END:
            self._wants = _KEY
            return JsonStep.TAKEN
        if character == '"' and self._wants != _COMMA_OR_END:
            self._wants, self._word = _IN_KEY, ""
            return JsonStep.TAKEN
        return JsonStep.WRONG

    def _end(self) -> JsonStep:
        if not self.name:
            return JsonStep.WRONG
        if not self._has_arguments:  # a function that takes none
            self._arguments, self._has_arguments, self._are_arguments_whole = ["{}"], True, True
        return JsonStep.LAST

    def _in_key(self, character: str) -> JsonStep:
        if character != '"':
            self._word += character
            return JsonStep.TAKEN if any(key.startswith(self._word) for key in _KEYS) else JsonStep.WRONG
        self._key = "arguments" if self._word in _ARGUMENTS else self._word
        self._wants = _COLON
        if self._word not in _KEYS or self._key in self._seen:
            return JsonStep.WRONG
        self._seen.add(self._key)
        return JsonStep.TAKEN

    def _in_name(self, character: str) -> JsonStep:
        if character != '"':
            self._word += character
            return JsonStep.TAKEN if any(name.startswith(self._word) for name in self._names) else JsonStep.WRONG
        self._wants = _COMMA_OR_END
        if self._word not in self._names:
            return JsonStep.WRONG
        self.name = self._word
        return JsonStep.TAKEN

    def _in_value(self, character: str) -> JsonStep:
        is_argument = self._key == "arguments"
        if is_argument and not self._has_arguments:
            if character in _SPACE:
                return JsonStep.TAKEN
            if character != "{":
                return JsonStep.WRONG
            self._has_arguments = True
        step = self._value.feed(character)
        if step is JsonStep.WRONG:
            return step
        if step is JsonStep.BEHIND:
            self._wants = _COMMA_OR_END
            return self._feed(character)
        if is_argument:
            self._arguments.append(character)
            self._are_arguments_whole = step is JsonStep.LAST
        if step is JsonStep.LAST:
            self._wants = _COMMA_OR_END
        return JsonStep.TAKEN


_KEY_OR_END = "key or end"
_KEY = "key"
_IN_KEY = "in key"
_COLON = "colon"
_BEFORE_NAME = "before name"
_IN_NAME = "in name"
_VALUE = "value"
_COMMA_OR_END = "comma or end"
