"""Which keys the configuration knows, and which of them is meant by one that it does not know."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

_LISTS = (list, tuple)  # the latter of any number of equal parts
MIN_LIKENESS = 0.6  # of two keys, by difflib: a slip of the finger has .8, another word less than this


def unknown_key(root: type[BaseModel], place: Sequence[int | str]) -> str:
    """What to say of the key at the end of ``place``, which ``root`` does not have there."""
    keys = _keys(_type_at(root, place[:-1]))
    wrong = str(place[-1])
    near = difflib.get_close_matches(wrong, keys, n=1, cutoff=MIN_LIKENESS)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    if elsewhere := [path for path in _paths(root) if path.rpartition(".")[2] == wrong]:
        return f"unknown key here; did you mean {elsewhere[0]!r}?"
    return f"unknown key; there are: {', '.join(keys)}"


def _type_at(root: Any, place: Sequence[int | str]) -> Any:
    kind = root
    for part in place:
        kind = _plain(kind)
        arguments = get_args(kind)
        if get_origin(kind) is dict:
            kind = arguments[1]
        elif get_origin(kind) in _LISTS:
            kind = arguments[0]
        else:
            kind = _fields(kind).get(str(part))
    return _plain(kind)


def _plain(kind: Any) -> Any:
    """Without what surrounds it: bounds, and the chance of being None."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        arguments = get_args(kind)
        kind = next(one for one in arguments if one is not NoneType)  # of Annotated, what is annotated comes first
    return kind


def _fields(kind: Any) -> Mapping[str, Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {}


def _keys(kind: Any) -> list[str]:
    return list(_fields(kind))


def _paths(kind: Any, before: str = "") -> Iterator[str]:
    """Every key there is, with those above it."""
    for name, inner in _fields(kind).items():
        path = f"{before}{name}"
        yield path
        plain = _plain(inner)
        if get_origin(plain) in _LISTS:
            yield from _paths(_plain(get_args(plain)[0]), f"{path}.0.")
        elif get_origin(plain) is dict:
            yield from _paths(_plain(get_args(plain)[1]), f"{path}.NAME.")
        else:
            yield from _paths(plain, f"{path}.")
