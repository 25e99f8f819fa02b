"""Objects of several kinds, told apart by one of their fields: a fault is told of the field, not of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from gateway.openai.part import ApiObject


def one_of(field: str, *kinds: type[ApiObject], refused: Callable[[str], str] | None = None) -> Callable[[Any], Any]:
    """Reads an object as the kind whose ``field`` (a `Literal` of one word) it has.

    ``refused``: what is to be said of a word that is none of theirs; ``""`` for nothing in particular. The reader is
    for a `PlainValidator`: a union of pydantic's would name its branches in the path of a fault.
    """
    by_word = {get_args(kind.model_fields[field].annotation)[0]: kind for kind in kinds}

    def read(value: Any) -> Any:
        if isinstance(value, kinds):
            return value
        if not isinstance(value, dict):
            raise ValueError("it is an object")
        word = value.get(field)
        kind = by_word.get(word) if isinstance(word, str) else None
        if kind is not None:
            return kind.model_validate(value)
        why = refused(word) if refused is not None and isinstance(word, str) else ""
        raise fault_of(field, why or f"it is one of: {', '.join(map(repr, by_word))}")

    return read


def fault_of(field: str, why: str) -> ValidationError:
    """To be raised by a validator of an object, about one of its fields. The braces of a text are doubled here."""
    problem = PydanticCustomError("value_error", why.replace("{", "{{").replace("}", "}}"))
    return ValidationError.from_exception_data(
        "a fault", [InitErrorDetails(type=problem, loc=(field,), input=None)], hide_input=True
    )
