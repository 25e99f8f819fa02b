"""How many remainders a schema has told apart."""

from __future__ import annotations

from typing import Any

import pytest

from shared.grammars.multiples import MAX_REMAINDERS, multiples_problem, schemas_in

MOST = {"multipleOf": MAX_REMAINDERS}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        MOST,
        {"properties": {"a": {"multipleOf": 0.01}, "b": {"multipleOf": 5}, "c": {"multipleOf": 1000}}},
        {"allOf": [{"multipleOf": 400}, {"multipleOf": 250}]},
        {"multipleOf": 0},
        {"multipleOf": True},
        {"multipleOf": "9e9"},
        {"properties": {"multipleOf": {"type": "integer"}}},
        {"multipleOf": float("inf")},
    ],
)
def test_few_are_fine(schema: Any) -> None:
    assert multiples_problem([schema]) == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"multipleOf": MAX_REMAINDERS + 1},
        {"multipleOf": -MAX_REMAINDERS - 1},
        {"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]},
        {"items": [MOST, MOST]},
        {"multipleOf": 0.9973, "anyOf": [{"multipleOf": 30}]},
        {"$ref": "#/$defs/a", "multipleOf": 997, "$defs": {"a": {"multipleOf": 991}}},
        {"multipleOf": 1e300},
        {"multipleOf": 10**400},
    ],
)
def test_many_are_not(schema: Any) -> None:
    assert "multipleOf" in multiples_problem([schema])


def test_schemas_in_a_grammar() -> None:
    assert list(schemas_in('start: %json {"multipleOf": 2} b\nb: %json{"a": 1}')) == [{"multipleOf": 2}, {"a": 1}]
    assert list(schemas_in('start: "%json"')) == []
    with pytest.raises(ValueError, match="follows %json at once"):
        list(schemas_in('start: "%json multipleOf"'))
