from __future__ import annotations

import pytest

from gateway.tools.notation import (
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    GLM45,
    HERMES,
    LLAMA3_JSON,
    MINIMAX_M2,
    MISTRAL_ARGS,
    NOTATIONS,
    OLMO3,
    QWEN3_CODER,
    Notation,
    notation_of,
)
from tests.gateway import tool_models
from tests.gateway.tiny import TEMPLATE


@pytest.mark.parametrize(
    ("template", "notation"),
    [
        *((template, NOTATIONS[name]) for name, template in tool_models.TEMPLATES.items()),
        ("{{ '<|python_tag|>' }}", LLAMA3_JSON),
        ("<tool_call>\n<function=' + name + '>\n<parameter=' + key + '>", QWEN3_CODER),
        ("<tool_call>{{ name }}<arg_key>{{ key }}</arg_key><arg_value>", GLM45),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]{{ name }}[ARGS]", MISTRAL_ARGS),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name }}\n```json", DEEPSEEK_V3),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", DEEPSEEK_V31),
        ("{% set begin = '<minimax:tool_call>' %}{{ begin }}<invoke name=\"{{ name }}\">", MINIMAX_M2),
        ("{% set word = '｜DSML｜' %}<{{ word }}function_calls>", DEEPSEEK_V32),
        ("{% set word = '｜DSML｜' %}{{ '<' + word + 'tool_calls>' }}", DEEPSEEK_V4),
        ("Write calls within <function_calls></function_calls> tags.", OLMO3),
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
    """The parser need not look back when a mark breaks off, nor look for more than one character."""
    marks = [mark for mark in (notation.begin, notation.end, *(notation.section or ())) if mark]
    assert all(mark[0] not in mark[1:] for mark in marks)
    assert {mark[0] for mark in (notation.begin, *(notation.section or ()))} == {notation.begin[0]}
