"""A constraint as a grammar, and what is wrong with one that is none."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher

from shared.grammars import problem
from shared.grammars.definition import MAX_WHITESPACE, GrammarError, definition
from shared.grammars.limits import LIMITS
from shared.grammars.problem import MAX_PROBLEM_CHARACTERS, build_problem_of, problem_of
from shared.messages.requests.payload import Constraint, ConstraintKind


def accepts(kind: ConstraintKind, text: str, output: str) -> bool:
    matcher = LLMatcher(problem._byte_tokenizer(), definition(Constraint(kind, text)), limits=LIMITS, log_level=0)
    output_bytes = list(output.encode())
    return matcher.try_consume_tokens(output_bytes) == len(output_bytes) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("kind", "text", "word", "other"),
    [
        ("json_schema", '{"type": "object", "required": ["a"]}', '{"a": 1}', '{"b": 1}'),
        ("json_schema", "{}", "[1]", "[1"),
        ("regex", "[ab]{2}/c", "ab/c", "abc"),
        ("regex", "", "", "a"),
        ("choice", '["yes", "n/o \\"\\u00e9\\""]', 'n/o "é"', "no"),
        ("grammar", 'start: "a" b\nb: /[0-9]+/', "a12", "a"),
        ("grammar", 'root ::= "a" | "b"', "b", "c"),
    ],
)
def test_each_kind_is_a_language(kind: ConstraintKind, text: str, word: str, other: str) -> None:
    assert problem_of(Constraint(kind, text)) == build_problem_of(Constraint(kind, text)) == ""
    assert accepts(kind, text, word)
    assert not accepts(kind, text, other)


def test_white_space_of_json_is_bounded() -> None:
    most = " " * MAX_WHITESPACE
    assert accepts("json_schema", '{"type": "object"}', f'{{{most}"a":{most}1,\n  "b": 2}}')
    assert not accepts("json_schema", '{"type": "object"}', f'{{{most} "a": 1}}')
    own = '{"type": "object", "x-guidance": {"whitespace_flexible": false, "lenient": true}}'
    assert accepts("json_schema", own, '{ "a": 1}')


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("json_schema", '{"type": "objct"}', "Invalid type: objct"),
        ("json_schema", '{"type": "array", "uniqueItems": true}', 'Unimplemented keys: ["uniqueItems"]'),
        ("json_schema", '{"x-guidance": {"lenient": true}, "not": {}}', 'Unimplemented keys: ["not"]'),
        ("json_schema", '{"$ref": "https://example.com/schema"}', "is not present in a registry"),
        ("json_schema", '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}', "no text matches it"),
        ("json_schema", "{", "Expecting property name"),
        ("json_schema", "[" * 100_000, "it is nested too deeply"),
        ("json_schema", "true", "a schema is a JSON object"),
        ("regex", "(a", "unclosed group"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", r"[^\W\w]", "no text matches it"),
        ("choice", '["a', "Unterminated string"),
        ("choice", "[]", "at least one string"),
        ("choice", '["a", 1]', "at least one string"),
        ("grammar", "start: x", 'unknown name: "x"'),
        ("grammar", "start: a\na: a", "no text matches it"),
        ("grammar", "", "No 'root' rule found"),
        ("grammar", "root ::= " + "(" * 2000 + '"a"' + ")" * 2000, "recursion"),
        ("grammar", 'start: <|im_start|> "a"', 'unknown special token: "<|im_start|>"'),
        ("grammar", 'start: <end> "a"', 'unknown special token: "<end>"'),
        ("grammar", 'start: %json {"type": "objct"}', "Invalid type: objct"),
    ],
)
def test_what_is_wrong_is_said(kind: ConstraintKind, text: str, said: str) -> None:
    assert said in problem_of(Constraint(kind, text))


def test_what_costs_too_much_is_a_problem() -> None:
    tripled = "\n".join(f"{a}: {b} {b} {b}" for a, b in zip("ABCDEFGHIJKLMNOP", "BCDEFGHIJKLMNOPQ", strict=True))
    assert "too big" in problem_of(Constraint("grammar", f'start: A\n{tripled}\nQ: "x"'))
    assert "too big" in build_problem_of(Constraint("grammar", f'start: A\n{tripled}\nQ: "x"'))


def test_remainders_are_bounded_wherever_they_stand() -> None:
    schema = '{"type": "integer", "multipleOf": 100000007}'
    hidden = schema.replace("Of", "\\u004ff")
    cases: list[tuple[ConstraintKind, str]] = [
        ("json_schema", schema),
        ("json_schema", hidden),
        ("grammar", f"start: %json {schema}"),
        ("grammar", f"start: %json {hidden}"),
        ("grammar", f"start: %json // of these\n {schema}"),
    ]
    for kind, text in cases:
        for said in (problem_of(Constraint(kind, text)), build_problem_of(Constraint(kind, text))):
            assert "multipleOf" in said or "%json" in said


def test_empty_lines_and_notations() -> None:
    empty = "\n \t\r\n" * 4
    assert problem_of(Constraint("grammar", f'{empty}start : "a"{empty}')) == ""
    assert problem_of(Constraint("grammar", f'{empty}root ::= "start: "{empty}')) == ""
    assert "No 'root' rule found" in problem_of(Constraint("grammar", "\n" * (1 << 14)))


def test_a_large_schema_is_fine() -> None:
    properties = {f"property {number}": {"type": "string"} for number in range(1000)}
    assert problem_of(Constraint("json_schema", json.dumps({"type": "object", "properties": properties}))) == ""


def test_a_problem_is_told_in_short() -> None:
    said = problem_of(Constraint("regex", "(" + "a" * 60_000))
    assert MAX_PROBLEM_CHARACTERS < len(said) < MAX_PROBLEM_CHARACTERS + 5


def test_only_our_own_may_name_tokens_by_id() -> None:
    assert build_problem_of(Constraint("grammar", 'start: <[100000]> "a"')) == ""
    assert "Token range end too large" in problem_of(Constraint("grammar", 'start: <[100000]> "a"'))


def test_no_grammar_at_all() -> None:
    with pytest.raises(GrammarError, match="Expecting value"):
        definition(Constraint("json_schema", "nothing"))
    assert "Expecting value" in build_problem_of(Constraint("json_schema", "nothing"))
