"""Objects of several kinds are read by the word of one field, and their faults are told of the client's own fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import ValidationError

from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject, path_of, text_of


class _Cat(ApiObject):
    kind: Literal["cat", "lion"]
    lives: int


class _Dog(ApiObject):
    kind: Literal["dog"] = "dog"
    bark: str = "wuff"


def _refused(word: str) -> str:
    return "no {fish} here" if word == "fish" else ""


class _Zoo(ApiObject):
    animals: list[Annotated[_Cat | _Dog, one_of("kind", _Cat, _Dog, refused=_refused)]]


class _Cats(ApiObject):
    cats: list[Annotated[_Cat, one_of("kind", _Cat)]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "cat", "lives": 9}, _Cat(kind="cat", lives=9)),
        ({"kind": "lion", "lives": 1}, _Cat(kind="lion", lives=1)),
        ({"kind": "dog"}, _Dog()),
        ({"bark": "au"}, _Dog(bark="au")),
        ({"kind": None, "bark": "au", "lives": None}, _Dog(bark="au")),
        (_Dog(bark="au"), _Dog(bark="au")),
    ],
)
def test_a_word_tells_the_kind(given: Any, expected: ApiObject) -> None:
    assert _Zoo.model_validate({"animals": [given]}).animals == [expected]


@pytest.mark.parametrize(
    ("given", "path", "text"),
    [
        (5, "animals[1]", "it is an object"),
        ({"kind": "cow"}, "animals[1].kind", "it is one of: 'cat', 'lion', 'dog'"),
        ({"kind": ["cat"]}, "animals[1].kind", "it is one of: 'cat', 'lion', 'dog'"),
        ({"kind": "fish"}, "animals[1].kind", "no {fish} here"),
        ({"kind": "cat"}, "animals[1].lives", "Field required"),
        ({"kind": "cat", "lives": "9"}, "animals[1].lives", "Input should be a valid integer"),
        ({"kind": "dog", "lives": 9}, "animals[1].lives", "an object whose kind is 'dog' has no 'lives'"),
        ({"lives": 9}, "animals[1].lives", "an object whose kind is 'dog' has no 'lives'"),
        ({"kind": "dog", "tail": 1}, "animals[1].tail", "Extra inputs are not permitted"),
    ],
)
def test_a_fault_is_told_of_its_field(given: Any, path: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Zoo.model_validate({"animals": [{}, given]})
    (problem,) = caught.value.errors()
    assert (path_of(problem["loc"]), text_of(problem)) == (path, text)


def test_without_a_default_the_word_has_to_be_there() -> None:
    with pytest.raises(ValidationError, match="it is one of: 'cat', 'lion'") as caught:
        _Cats.model_validate({"cats": [{"lives": 9}]})
    assert path_of(caught.value.errors()[0]["loc"]) == "cats[0].kind"


def test_a_schema_names_the_kinds() -> None:
    several, single = (kind.model_json_schema()["properties"] for kind in (_Zoo, _Cats))
    assert several["animals"]["items"] == {"anyOf": [{"$ref": "#/$defs/_Cat"}, {"$ref": "#/$defs/_Dog"}]}
    assert single["cats"]["items"] == {"$ref": "#/$defs/_Cat"}
