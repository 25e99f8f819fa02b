"""All problems of a configuration at once: where one value is wrong, the others are still held against each other.

Checks across fields run only on values that are all of the right kind. So what is wrong is taken out, or replaced where
something has to stand there, and the rest is validated again. A problem that names a value which was taken out says
nothing then, and is left out until that value is mended.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from shared.config.reading.keys import unknown_key

MAX_ROUNDS = 4  # fields, what a section says of its fields, what is required and was taken out, the sections together
PLACEHOLDER = "unset-value-"  # where a name has to stand

UNCHECKED = "unchecked"
"""Context of a validation that keeps to single sections."""

ConfigPlace = tuple[int | str, ...]
Config = TypeVar("Config", bound=BaseModel)
_Container = dict[Any, Any] | list[Any]

_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = "missing"
_OF_KEY = "[key]"  # ends the place of a key that cannot be one
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Inspection(Generic[Config]):
    """What is wrong with a configuration, and the rest of it."""

    problems: list[str]
    """A line for each, its place first, in the order of the sections."""
    config: Config | None
    """With what is wrong left out or replaced; None where that is not enough."""
    broken: frozenset[ConfigPlace]
    kind: type[Config]

    def with_more(self, lines: Iterable[str]) -> list[str]:
        """All problems with others that were found in ``config``, without those that only come from mending it."""
        return _sorted(self.kind, [*self.problems, *(line for line in lines if not is_artefact(line, (), self.broken))])


def inspect(kind: type[Config], values: Mapping[str, Any]) -> Inspection[Config]:
    """Find all problems of ``values``. Validated as `UNCHECKED`, ``kind`` leaves out what its sections say together."""
    mending = _Mending(kind, copy.deepcopy(dict(values)))
    for _ in range(MAX_ROUNDS):
        if not mending.look():
            break
    try:
        config = kind.model_validate(mending.values, context=UNCHECKED)
    except ValidationError:
        config = None
    return Inspection(_sorted(kind, mending.lines), config, frozenset(mending.broken), kind)


def is_artefact(text: str, place: ConfigPlace, broken: Collection[ConfigPlace]) -> bool:
    """Whether a problem may be there only because something was taken out."""
    if PLACEHOLDER in text or any(place[:depth] in broken for depth in range(1, len(place) + 1)):
        return True
    section = place or _section(text)
    words = set(_WORD.findall(text))
    return any(
        str(one[-1]) in words and (len(one) == 1 or one[: len(section)] == section)
        for one in broken
        if isinstance(one[-1], str)
    )


def _sorted(kind: type[BaseModel], lines: Iterable[str]) -> list[str]:
    return sorted(lines, key=_order(kind))


def _order(kind: type[BaseModel]) -> Callable[[str], tuple[int, int]]:
    sections = list(kind.model_fields)

    def key(line: str) -> tuple[int, int]:
        first, *numbers = _section(line)
        return sections.index(str(first)) if first in sections else len(sections), int(numbers[0]) if numbers else -1

    return key


def _section(line: str) -> ConfigPlace:
    """The section that a line is about, with its number where there are several."""
    name, _, rest = line.partition(":")[0].partition(".")
    number = rest.partition(".")[0]
    return (name, int(number)) if number.isdigit() else (name,)


@dataclass(frozen=True)
class _Problem:
    """As pydantic tells it."""

    kind: str
    place: ConfigPlace
    texts: list[str]


@dataclass
class _Mending:
    """Values that become better with each look, and what was wrong with them."""

    kind: type[BaseModel]
    values: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    broken: set[ConfigPlace] = field(default_factory=set)

    def look(self) -> bool:
        """Validate; note what is wrong and take it out. Whether another look may find more."""
        try:
            self.kind.model_validate(self.values)
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False)
        else:
            return False
        problems = [self._problem(one["type"], one["loc"], one["msg"]) for one in found]
        for one in problems:
            self.lines += [
                _line(one.place, text) for text in one.texts if not is_artefact(text, one.place, self.broken)
            ]
        for one in problems:
            self._take_out(one)
        return all(one.place for one in problems)  # what the sections say of each other is the last word

    def _problem(self, kind: str, place: ConfigPlace, message: str) -> _Problem:
        if kind in _UNKNOWN_KEY:
            return _Problem(kind, place, [unknown_key(self.kind, place)])
        return _Problem(kind, place, message.removeprefix("Value error, ").splitlines())

    def _take_out(self, problem: _Problem) -> None:
        """Remove what stands there; of a section as a whole, the fields that the problem names."""
        place = tuple(part for part in problem.place if part != _OF_KEY)
        owner, place = self._owner(place)
        if owner is None:
            return
        key = place[-1]
        value = owner.get(key) if isinstance(owner, dict) else owner[int(key)]
        if place == problem.place and isinstance(value, dict):
            words = set(_WORD.findall("\n".join(problem.texts)))
            if named := [name for name in value if str(name) in words]:
                for name in named:
                    del value[name]
                self.broken |= {(*place, name) for name in named}
                return
        self.broken |= {place, problem.place}
        if isinstance(owner, list):
            owner[int(key)] = {}
        elif problem.kind == _MISSING:
            owner[key] = f"{PLACEHOLDER}{len(self.broken)}"
        else:
            owner.pop(key, None)

    def _owner(self, place: ConfigPlace) -> tuple[_Container | None, ConfigPlace]:
        """What the place is to be taken out of, and the way to it: plain values of a list go all together."""
        owner: Any = self.values
        found: _Container | None = None
        depth = 0
        for number, part in enumerate(place):
            if isinstance(owner, dict):
                found, depth = owner, number + 1
                owner = owner.get(part)
            elif isinstance(owner, list) and isinstance(part, int) and part < len(owner):
                if number == 1:  # a section in a list of them: the others keep their numbers
                    found, depth = owner, number + 1
                owner = owner[part]
            else:
                break
        return found, place[:depth]


def _line(place: ConfigPlace, text: str) -> str:
    return f"{'.'.join(map(str, place))}: {text}" if place else text
