"""A literal as Python writes it, read in a time that grows with its length alone.

Numbers, texts, lists, tuples and dictionaries, with JSON's words for true, false and nothing beside Python's. What JSON
has not (bytes, sets, complex numbers) is no literal here. Python's own parser makes a tree of objects first, for which
it takes 7 µs a character: a call of 262k characters would hold up its gateway for seconds.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass, field

_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_SKIPPED = r"(?:[ \t\n\r\f]|\\\n|\#[^\n]*)*+"
_QUOTED = "|".join(
    rf"{mark * 3}(?:[^{mark}\\]|\\.|{mark}(?!{mark * 2}))*+{mark * 3}|{mark}(?!{mark * 2})(?:[^{mark}\\\n]|\\.)*+{mark}"
    for mark in "'\""
)
_STRING = rf"[rRuU]?(?:{_QUOTED})"
_NUMBER = r"[+-]?[ \t]*(?:0[xXoObB][0-9a-fA-F_]+|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)"
_TOKEN = re.compile(
    rf"{_SKIPPED}(?:([\[({{\])}}:,])|((?:{_STRING}{_SKIPPED})++)|({_NUMBER})|([A-Za-z_][A-Za-z_0-9]*+))", re.DOTALL
)
_MARK, _STRINGS, _DIGITS = 1, 2, 3
_ONE_STRING = re.compile(rf"({_STRING}){_SKIPPED}", re.DOTALL)
_END = re.compile(_SKIPPED)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|N\{([^}]*)\}|([0-7]{1,3})|(.))", re.DOTALL
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "\n": ""} | {
    itself: itself for itself in "\\'\""
}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def read_literal(text: str) -> object:
    """The value, of lists in the place of tuples; `ValueError` for what is none."""
    reading, end = _Reading(), 0
    while (found := _TOKEN.match(text, end)) is not None:
        kind, end = found.lastindex, found.end()
        if kind == _MARK:
            reading.mark(found[_MARK])
        elif kind == _STRINGS:
            reading.value("".join(_string(one[1]) for one in _ONE_STRING.finditer(found[_STRINGS])))
        elif kind == _DIGITS:
            reading.value(_number(found[_DIGITS]))
        else:
            reading.value(_word(found[0].lstrip()))
    if _END.fullmatch(text, end) is None:
        raise ValueError("there is something that is no literal")
    return reading.whole()


@dataclass(slots=True)
class _Open:
    """A list, tuple or dictionary that is not closed yet; the outermost is the place of the value itself."""

    mark: str
    items: list[object] = field(default_factory=list)
    """Of a dictionary, keys and values by turns."""
    num_commas: int = 0
    num_colons: int = 0
    wants_value: bool = True

    def closed(self) -> object:
        if self.wants_value and self.items and self.num_commas != self.num_items:
            raise ValueError("a value is missing")
        if self.mark == "(" and self.num_commas == 0 and self.items:
            return self.items[0]
        if self.mark != "{":
            return self.items
        keys = self.items[::2]
        if self.num_colons != len(keys) or not all(isinstance(key, str | int | float | None) for key in keys):
            raise ValueError("it is a set, or its keys are none of JSON's")
        return dict(zip(keys, self.items[1::2], strict=True))

    @property
    def num_items(self) -> int:
        return self.num_colons if self.mark == "{" and self.num_colons else len(self.items)


class _Reading:
    """What of a literal has come so far."""

    def __init__(self) -> None:
        self._open = _Open("")
        self._around: list[_Open] = []

    def value(self, value: object) -> None:
        now = self._open
        if not now.wants_value:
            raise ValueError("two values stand side by side")
        now.items.append(value)
        now.wants_value = False

    def mark(self, mark: str) -> None:
        now = self._open
        if mark in _CLOSING:
            if not now.wants_value:
                raise ValueError("nothing is called, and nothing is looked up")
            self._around.append(now)
            self._open = _Open(mark)
        elif mark == ",":
            self._comma(now)
        elif mark == ":":
            is_key = now.mark == "{" and not now.wants_value and len(now.items) == 2 * now.num_colons + 1
            if not is_key:
                raise ValueError("a colon stands behind a key alone")
            now.num_colons += 1
            now.wants_value = True
        else:
            if mark != _CLOSING.get(now.mark):
                raise ValueError("it is closed by another mark than it was opened with")
            self._open = self._around.pop()
            self.value(now.closed())

    @staticmethod
    def _comma(now: _Open) -> None:
        is_pair = not now.num_colons or len(now.items) == 2 * now.num_colons
        if now.wants_value or not is_pair:
            raise ValueError("a value is missing")
        now.num_commas += 1
        now.wants_value = True

    def whole(self) -> object:
        now = self._open
        if self._around or now.wants_value:
            raise ValueError("it is not whole")
        return now.items if now.num_commas else now.items[0]


def _string(text: str) -> str:
    is_raw = text[0] in "rR"
    if text[0] in "rRuU":
        text = text[1:]
    num_marks = 3 if text[:3] in ("'''", '"""') else 1
    inner = text[num_marks:-num_marks]
    return inner if is_raw or "\\" not in inner else _ESCAPE.sub(_unescaped, inner)


def _unescaped(found: re.Match[str]) -> str:
    two, four, eight, name, octal, other = found.groups()
    if other is not None:
        if other in "xuUN":
            raise ValueError("an escape is cut")
        return _ESCAPED.get(other, found[0])
    if name is not None:
        return _named(name)
    number = int(octal, 8) if octal else int(two or four or eight, 16)
    if number > sys.maxunicode:
        raise ValueError("there is no character of that number")
    return chr(number)


def _named(name: str) -> str:
    try:
        return unicodedata.lookup(name)
    except KeyError as error:
        raise ValueError("there is no character of that name") from error


def _number(text: str) -> int | float:
    text = text.replace(" ", "").replace("\t", "")
    digits = text.lstrip("+-")
    is_whole = digits[:2].lower() in ("0x", "0o", "0b") or not any(mark in digits for mark in ".eE")
    return int(text, 0) if is_whole else float(text)


def _word(text: str) -> bool | None:
    if text not in _WORDS:
        raise ValueError("it has a name")
    return _WORDS[text]
