"""One JSON value, read character by character: is it still one, and where does it end?"""

from __future__ import annotations

import enum
import re

MAX_DEPTH = 256  # of lists and objects in each other; what is deeper is no value to us

_SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = ("true", "false", "null")
_OF_NUMBERS = frozenset("0123456789+-.eE")
_MAX_NUMBER_CHARACTERS = 512
_ESCAPED = frozenset('"\\/bfnrtu')
_HEX = frozenset("0123456789abcdefABCDEF")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')  # within a string


class JsonStep(enum.Enum):
    """What a character was to a value."""

    TAKEN = "taken"
    """It belongs to the value, which goes on."""
    LAST = "last"
    """It is the value's last."""
    BEHIND = "behind"
    """The value, a number or a word, was complete before it."""
    WRONG = "wrong"
    """No value goes on like this."""


class JsonValue:
    """Not fed again after any other step than `JsonStep.TAKEN`."""

    def __init__(self) -> None:
        self._open: list[str] = []  # what closes the lists and objects around
        self._wants = _VALUE
        self._word = ""  # of a number or a word, so far
        self._hex_left = 0
        self._is_key = False

    def run(self, text: str, begin: int) -> str:
        """Take as much of the text, from ``begin`` on, as is plain text of a string: the quick way; often nothing."""
        if self._wants != _IN_STRING or self._hex_left:
            return ""
        found = _PLAIN.match(text, begin)
        return found[0] if found else ""

    def feed(self, character: str) -> JsonStep:
        """Take the next character; white space may stand before the value."""
        wants = self._wants
        if wants == _IN_STRING:
            return self._in_string(character)
        if wants == _ESCAPE:
            return self._escape(character)
        if wants == _IN_WORD:
            return self._in_word(character)
        if character in _SPACE:
            return JsonStep.TAKEN
        if wants in (_VALUE, _VALUE_OR_END):
            return self._begin(character)
        if wants in (_KEY, _KEY_OR_END):
            return self._key(character)
        if wants == _COLON:
            self._wants = _VALUE
            return JsonStep.TAKEN if character == ":" else JsonStep.WRONG
        return self._behind_item(character)

    def _begin(self, character: str) -> JsonStep:
        if character == "]" and self._wants == _VALUE_OR_END:
            return self._close()
        if character in "[{":
            if len(self._open) == MAX_DEPTH:
                return JsonStep.WRONG
            self._open.append("]" if character == "[" else "}")
            self._wants = _VALUE_OR_END if character == "[" else _KEY_OR_END
            return JsonStep.TAKEN
        if character == '"':
            self._wants, self._is_key = _IN_STRING, False
            return JsonStep.TAKEN
        self._wants, self._word = _IN_WORD, character
        return JsonStep.TAKEN if self._may_be_word() else JsonStep.WRONG

    def _key(self, character: str) -> JsonStep:
        if character == "}" and self._wants == _KEY_OR_END:
            return self._close()
        self._wants, self._is_key = _IN_STRING, True
        return JsonStep.TAKEN if character == '"' else JsonStep.WRONG

    def _in_string(self, character: str) -> JsonStep:
        if self._hex_left:
            self._hex_left -= 1
            return JsonStep.TAKEN if character in _HEX else JsonStep.WRONG
        if character == "\\":
            self._wants = _ESCAPE
        elif character == '"':
            if not self._is_key:
                return self._item_is_over()
            self._wants = _COLON
        elif character < " ":
            return JsonStep.WRONG
        return JsonStep.TAKEN

    def _escape(self, character: str) -> JsonStep:
        self._wants = _IN_STRING
        if character == "u":
            self._hex_left = 4
        return JsonStep.TAKEN if character in _ESCAPED else JsonStep.WRONG

    def _in_word(self, character: str) -> JsonStep:
        if character.isascii() and (character.isalnum() or character in _OF_NUMBERS):
            self._word += character
            return JsonStep.TAKEN if self._may_be_word() else JsonStep.WRONG
        if not (self._word in _WORDS or _NUMBER.fullmatch(self._word)):
            return JsonStep.WRONG
        if not self._open:
            return JsonStep.BEHIND
        self._wants = _END_OF_ITEM
        return JsonStep.TAKEN if character in _SPACE else self._behind_item(character)

    def _may_be_word(self) -> bool:
        if self._word[0].isalpha():
            return any(word.startswith(self._word) for word in _WORDS)
        return len(self._word) <= _MAX_NUMBER_CHARACTERS and _OF_NUMBERS.issuperset(self._word)

    def _behind_item(self, character: str) -> JsonStep:
        if character == self._open[-1]:
            return self._close()
        self._wants = _VALUE if self._open[-1] == "]" else _KEY
        return JsonStep.TAKEN if character == "," else JsonStep.WRONG

    def _close(self) -> JsonStep:
        self._open.pop()
        return self._item_is_over()

    def _item_is_over(self) -> JsonStep:
        self._wants = _END_OF_ITEM
        return JsonStep.TAKEN if self._open else JsonStep.LAST


_VALUE = "value"
_VALUE_OR_END = "value or end"
_KEY = "key"
_KEY_OR_END = "key or end"
_COLON = "colon"
_IN_STRING = "in string"
_ESCAPE = "escape"
_IN_WORD = "in word"
_END_OF_ITEM = "end of item"
