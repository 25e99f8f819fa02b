"""Whatever the grammar of forced calls allows is calls to the parser, and what is no call it does not allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.tools.call_parser import CallParser
from gateway.tools.events import Arguments, CallBegin, Text, joined
from gateway.tools.forced_calls import MAX_FORCED_CALLS, ForcedFunction, forced_calls
from gateway.tools.notation import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DSML,
    GRANITE,
    HERMES,
    KIMI_K2,
    LLAMA3_JSON,
    MINIMAX_M2,
    MISTRAL,
    MISTRAL_ARGS,
    NOTATIONS,
    OLMO3,
    Notation,
)
from shared.grammars.problem import build_problem_of
from shared.messages.requests.payload import Constraint
from tests.gateway.tool_models import MARK, output_ids
from tests.gateway.tools.byte_grammar import accepts
from tests.gateway.tools.written_calls import in_objects

CITY: dict[str, Any] = {
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "$defs": {"city": {"enum": ["Paris", 'a\nstart: "b" ::= é']}},
    "required": ["city"],
    "additionalProperties": False,
    "x-guidance": {"lenient": True},
}
FUNCTIONS = [ForcedFunction("get", CITY), ForcedFunction("stop", None)]


def constraint(notation: Notation, *, is_single: bool = False, **control_ids: int) -> Constraint:
    made = forced_calls(notation, FUNCTIONS, control_ids, is_single=is_single)
    assert build_problem_of(made) == ""
    return made


GET, STOP = '{"city": "Paris"}', "{}"
ONE = {notation: in_objects(notation, [("get", GET)]) for notation in NOTATIONS.values()}


def forced(notation: Notation, text: str) -> str:
    """Without the mark that ends an output: drawn as such, it is none of the grammar's."""
    return text.removesuffix(notation.end) if notation.is_last else text


TWO = {notation: in_objects(notation, [("get", GET), ("stop", STOP)]) for notation in NOTATIONS.values()}


@pytest.mark.parametrize("notation", NOTATIONS.values())
def test_what_is_allowed_is_read_as_calls(notation: Notation) -> None:
    several, single = constraint(notation), constraint(notation, is_single=True)
    assert accepts(several, output_ids(forced(notation, ONE[notation])))
    assert accepts(single, output_ids(forced(notation, ONE[notation])))
    assert accepts(several, output_ids(forced(notation, TWO[notation]))) is not notation.is_last
    assert not accepts(single, output_ids(forced(notation, TWO[notation])))
    parser = CallParser(notation, {"get": CITY, "stop": None})
    events = joined([*parser.feed(TWO[notation]), *parser.end()])
    assert events == [CallBegin("get"), Arguments(GET), CallBegin("stop"), Arguments(STOP)]


@pytest.mark.parametrize("notation", NOTATIONS.values())
@pytest.mark.parametrize(
    ("old", "new"),
    [("get", "got"), ("Paris", "Rome"), ('{"city": "Paris"}', "{}"), ("", "Well: "), ("}", "")],
)
def test_what_is_no_call_is_not_allowed(notation: Notation, old: str, new: str) -> None:
    assert not accepts(constraint(notation), output_ids(forced(notation, ONE[notation].replace(old, new, 1))))


@pytest.mark.parametrize(
    ("notation", "mark"),
    [
        (HERMES, "<tool_call>"),
        (MISTRAL, "[TOOL_CALLS]"),
        (MISTRAL_ARGS, "[ARGS]"),
        (DEEPSEEK_V3, "<｜tool▁sep｜>"),
        (DEEPSEEK_V3, "<｜tool▁call▁end｜>"),
        (DEEPSEEK_V31, "<｜tool▁calls▁end｜>"),
        (KIMI_K2, "<|tool_call_argument_begin|>"),
        (GRANITE, "<|/tool_call|>"),
        (MINIMAX_M2, "<minimax:tool_call>"),
        (DEEPSEEK_V32, DSML),
        (OLMO3, "</function_calls>"),
    ],
)
def test_a_mark_without_text_is_named_by_its_id(notation: Notation, mark: str) -> None:
    made = forced_calls(notation, FUNCTIONS, {mark: MARK}, is_single=False)
    assert accepts(made, output_ids(ONE[notation], mark))
    assert not accepts(made, output_ids(ONE[notation]))


def test_calls_are_bounded() -> None:
    made = forced_calls(LLAMA3_JSON, [ForcedFunction("stop", None)], {}, is_single=False)
    call = '{"name": "stop", "parameters": {}}'
    assert accepts(made, output_ids("; ".join([call] * MAX_FORCED_CALLS)))
    assert not accepts(made, output_ids("; ".join([call] * (MAX_FORCED_CALLS + 1))))


def test_arguments_are_an_object_whatever_the_schema_says() -> None:
    made = forced_calls(LLAMA3_JSON, [ForcedFunction("any", {})], {}, is_single=True)
    assert accepts(made, output_ids('{"name": "any", "parameters": {"a": [1]}}'))
    assert not accepts(made, output_ids('{"name": "any", "parameters": 5}'))


def test_names_and_schemas_are_data_and_no_grammar() -> None:
    odd = 'a\nstart: "b" ::= é'
    text = f'{{"name": "get", "parameters": {json.dumps({"city": odd}, ensure_ascii=False)}}}'
    assert accepts(constraint(LLAMA3_JSON), output_ids(text))
    parser = CallParser(LLAMA3_JSON, {"get": None})
    assert Text not in {type(event) for event in [*parser.feed(text), *parser.end()]}
