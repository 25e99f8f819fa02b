"""The value of one argument that is written as text between tags, as JSON.

Where it is a string, which its schema mostly says, the text is one, whatever it looks like; else it is the JSON that it
says, or a string where it is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from gateway.tools.values.json_value import JsonStep

MAX_HELD_CHARACTERS = 1 << 16  # of a value that is read at its end; a longer one is taken for a string as it comes
_WORDS = {"True": "true", "False": "false", "None": "null"}
"""Python's words, which templates show to models where they write values that are no strings without JSON."""
_PLAIN = re.compile(r"[^<\n]+")


def is_text(schema: object) -> bool:
    """Whether a value of this schema may be a string; so is one of which nothing is said."""
    if not isinstance(schema, Mapping):
        return True
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind == "string"
    if isinstance(kind, list):
        return "string" in kind
    if isinstance(schema.get("enum"), list):
        return any(isinstance(one, str) for one in schema["enum"])
    parts = schema.get("anyOf", schema.get("oneOf"))
    return any(map(is_text, parts)) if isinstance(parts, list) else True


class TagValue:
    """Fed with what comes behind the tag that opens it, up to ``end``, the tag that closes it."""

    def __init__(self, end: str, *, is_string: bool, is_on_lines: bool) -> None:
        """``is_on_lines``: a line break behind the first tag and one before the last are none of the value's."""
        self._pieces: list[str] = []  # JSON that has come, and has not been taken away
        self._is_text = is_string
        self._end = end
        self._is_on_lines = is_on_lines
        self._is_first = True
        self._break = ""  # a line break that may be the last
        self._tag = ""  # as much of the end as the text's own end has
        self._held: list[str] = []
        self._num_held = 0
        if self._is_text:
            self._pieces.append('"')

    def run(self, text: str, begin: int) -> str:
        """Take as much of the text, from ``begin`` on, as is surely of the value; often nothing."""
        found = None if self._tag else _PLAIN.match(text, begin)
        if found is None:
            return ""
        self._say(found[0])
        return found[0]

    def take(self) -> list[str]:
        """The JSON that has come since it was taken last."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def feed(self, character: str) -> JsonStep:
        """`JsonStep.LAST` with the end of the closing tag; never wrong."""
        if self._end.startswith(self._tag + character):
            self._tag += character
            if self._tag != self._end:
                return JsonStep.TAKEN
            self._close()
            return JsonStep.LAST
        if self._tag:
            # the first character of a tag is nowhere else in it, so what was read of it is text as a whole
            held, self._tag = self._tag, ""
            self._say(held)
            return self.feed(character)
        if character == "\n" and self._is_on_lines:
            if not self._is_first:
                self._say("")
                self._break = "\n"
            self._is_first = False
            return JsonStep.TAKEN
        self._say(character)
        return JsonStep.TAKEN

    def _say(self, text: str) -> None:
        """It is of the value, and so is the line break before it."""
        text, self._break, self._is_first = self._break + text, "", False
        if self._is_text:
            self._pieces.append(json.dumps(text, ensure_ascii=False)[1:-1])
            return
        self._held.append(text)
        self._num_held += len(text)
        if self._num_held > MAX_HELD_CHARACTERS:
            self._become_text()

    def _become_text(self) -> None:
        self._is_text = True
        self._pieces.append('"' + json.dumps("".join(self._held), ensure_ascii=False)[1:-1])
        self._held = []

    def _close(self) -> None:
        if not self._is_text:
            text = "".join(self._held).strip()
            text = _WORDS.get(text, text)
            if _is_json(text):
                self._pieces.append(text)
                return
            self._become_text()
        self._pieces.append('"')


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not of JSON")
