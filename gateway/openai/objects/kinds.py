"""Objects of several kinds, told apart by one of their fields: a fault is told of the field, not of a kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, get_args

from pydantic import PlainValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from gateway.openai.objects.part import ApiObject, known_names


def one_of(field: str, *kinds: type[ApiObject], refused: Callable[[str], str] | None = None) -> PlainValidator:
    """Reads an object as the kind that has its word among those of ``field``, a `Literal`.

    Where a kind has a default there, an object without the field is of that kind. ``refused``: what is to be said of a
    word that is none of theirs; ``""`` for nothing in particular. In place of a union of pydantic's, which would name
    its branches in the path of a fault.
    """
    fields = {kind: kind.model_fields[field] for kind in kinds}
    by_word = {word: kind for kind, one in fields.items() for word in get_args(one.annotation)}
    unsaid = next((one.default for one in fields.values() if not one.is_required()), None)
    names = frozenset[str]().union(*map(known_names, kinds))
    foreign = {kind: sorted(names - known_names(kind)) for kind in kinds}

    def read(value: Any) -> Any:
        if isinstance(value, kinds):
            return value
        if not isinstance(value, dict):
            raise ValueError("it is an object")
        given = value.get(field)
        word = unsaid if given is None else given
        kind = by_word.get(word) if isinstance(word, str) else None
        if kind is None:
            why = refused(word) if refused is not None and isinstance(word, str) else ""
            raise _fault_of(field, why or f"it is one of: {', '.join(map(repr, by_word))}")
        for name in foreign[kind]:
            if value.get(name) is not None:
                raise _fault_of(name, f"an object whose {field} is {word!r} has no {name!r}")
        return kind.model_validate(value)

    return PlainValidator(read, json_schema_input_type=reduce(or_, kinds))


def _fault_of(field: str, why: str) -> ValidationError:
    """Of one of an object's fields."""
    problem = InitErrorDetails(type=PydanticCustomError("value_error", why), loc=(field,), input=None)
    return ValidationError.from_exception_data("a fault", [problem], hide_input=True)
