"""A call as Gemma 4 writes it, made a JSON object: ``call:get{city:<|"|>Paris<|"|>,days:[1,2]}``.

Keys are bare, strings stand between marks and have no escapes, all else is as in JSON. A call is told when it is whole:
until then it may turn out to be none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from gateway.tools.calls.call_reader import CallReader, Functions
from gateway.tools.values.json_value import JsonStep
from gateway.tools.values.word import NameWord, Word

QUOTE = '<|"|>'
MAX_CALL_CHARACTERS = 1 << 18
_BEFORE_NAME = "call:"
_BARE_KEY = re.compile(r"([{,]\s*)([\w.$-]+)(\s*:)")


def open_gemma(character: str, functions: Functions) -> CallReader | None:
    """A call begins with the word that stands before its name."""
    call = GemmaCall(functions)
    return call if call.feed(character) is JsonStep.TAKEN else None


class GemmaCall:
    """See `CallReader`."""

    def __init__(self, names: Collection[str]) -> None:
        self.name = ""
        self.is_known = False
        self.is_complete = False
        self._word = Word(_BEFORE_NAME)
        self._name = NameWord(names)
        self._held: list[str] = []  # of the arguments
        self._depth = 0
        self._is_string = False
        self._mark = ""  # as much of the mark around strings as the end of the held text has
        self._arguments = ""
        self._wants = _WORD

    def feed(self, character: str) -> JsonStep:
        """See `CallReader`."""
        if self._wants == _WORD:
            if self._word.feed(character) is JsonStep.WRONG:
                return JsonStep.WRONG
            self._wants = _NAME if self._word.text == _BEFORE_NAME else _WORD
            return JsonStep.TAKEN
        if self._wants == _NAME:
            return self._in_name(character)
        return self._in_arguments(character)

    def run(self, text: str, begin: int) -> str:  # noqa: ARG002 (arguments are told as a whole)
        """See `CallReader`."""
        return ""

    def take_arguments(self) -> str:
        """See `CallReader`."""
        arguments, self._arguments = self._arguments, ""
        return arguments

    def _in_name(self, character: str) -> JsonStep:
        step = self._name.feed(character)
        if step is not JsonStep.BEHIND:
            return step
        if character != "{":
            return JsonStep.WRONG
        self.name = self._name.text
        self._wants = _ARGUMENTS
        return self._in_arguments(character)

    def _in_arguments(self, character: str) -> JsonStep:
        self._held.append(character)
        if len(self._held) > MAX_CALL_CHARACTERS:
            return JsonStep.WRONG
        if QUOTE.startswith(self._mark + character):
            self._mark += character
            if self._mark == QUOTE:
                self._is_string, self._mark = not self._is_string, ""
            return JsonStep.TAKEN
        self._mark = character if QUOTE.startswith(character) else ""
        if self._is_string:
            return JsonStep.TAKEN
        self._depth += (character in "{[") - (character in "]}")
        return self._close() if self._depth == 0 else JsonStep.TAKEN

    def _close(self) -> JsonStep:
        try:
            arguments = json.loads(_as_json("".join(self._held)))
        except (ValueError, RecursionError):
            return JsonStep.WRONG
        self._arguments = json.dumps(arguments, ensure_ascii=False)
        self.is_known = self.is_complete = True
        return JsonStep.LAST


def _as_json(text: str) -> str:
    """With quotes: every second piece between marks is a string."""
    pieces = text.split(QUOTE)
    for number, piece in enumerate(pieces):
        pieces[number] = json.dumps(piece, ensure_ascii=False) if number % 2 else _BARE_KEY.sub(r'\1"\2"\3', piece)
    return "".join(pieces)


_WORD = "word"
_NAME = "name"
_ARGUMENTS = "arguments"
