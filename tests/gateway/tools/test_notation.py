from __future__ import annotations

import pytest

from gateway.tools.notation import HERMES, LLAMA3_JSON, MISTRAL, NOTATIONS, Notation, notation_of
from tests.gateway import tool_models
from tests.gateway.tiny import TEMPLATE


@pytest.mark.parametrize(
    ("template", "notation"),
    [
        (tool_models.HERMES, HERMES),
        (tool_models.MISTRAL, MISTRAL),
        (tool_models.LLAMA3, LLAMA3_JSON),
        ("{{ '<|python_tag|>' }}", LLAMA3_JSON),
        ("{{ tools | tojson }}", HERMES),
        (TEMPLATE, HERMES),
        ("", HERMES),
    ],
)
def test_a_family_is_known_by_its_template(template: str, notation: Notation) -> None:
    assert notation_of(template) is notation


@pytest.mark.parametrize("name", NOTATIONS)
def test_a_name_is_stronger(name: str) -> None:
    assert notation_of(tool_models.HERMES, name) is NOTATIONS[name]


@pytest.mark.parametrize("notation", NOTATIONS.values())
def test_marks_begin_with_what_is_nowhere_else_in_them(notation: Notation) -> None:
    """The parser need not look back when a mark breaks off."""
    assert all(marker[0] not in marker[1:] for marker in notation.markers)
