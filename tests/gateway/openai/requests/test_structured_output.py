"""``response_format`` and ``structured_outputs``: each way to say what an answer has to be, and each wrong one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.openai.requests.schema import ChatCompletionRequest, CompletionRequest
from gateway.openai.requests.structured_output import MAX_CHOICES, MAX_CONSTRAINT_CHARACTERS, MAX_GRAMMAR_CHARACTERS
from shared.messages.requests.payload import Constraint
from tests.gateway.openai.requests.test_schema import chat, completion, refusal

SCHEMA = {"type": "object", "properties": {"a": {"enum": [None, 1.5, "ü"]}}, "required": ["a"]}
TEXT = '{"type":"object","properties":{"a":{"enum":[null,1.5,"ü"]}},"required":["a"]}'
ANY_OBJECT = Constraint("json_schema", '{"type":"object"}')


def named(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, **fields}}


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({}, None),
        ({"response_format": None, "structured_outputs": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "text", "json_schema": None}}, None),
        ({"response_format": {"type": "json_object"}}, ANY_OBJECT),
        ({"response_format": named()}, Constraint("json_schema", TEXT)),
        ({"response_format": named(strict=True, description="d")}, Constraint("json_schema", TEXT)),
        ({"response_format": named(strict=None, description=None)}, Constraint("json_schema", TEXT)),
        ({"response_format": {"type": "text"}, "structured_outputs": {"json_object": True}}, ANY_OBJECT),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint("json_schema", TEXT)),
        (
            {"structured_outputs": {"json": '{"type": "null"}', "regex": None}},
            Constraint("json_schema", '{"type": "null"}'),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Constraint("regex", "a+")),
        ({"structured_outputs": {"choice": ["yes", "né"]}}, Constraint("choice", '["yes","né"]')),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, Constraint("grammar", 'start: "a"')),
    ],
)
def test_what_an_answer_has_to_be(fields: dict[str, Any], constraint: Constraint | None) -> None:
    assert chat(**fields).constraint == completion(**fields).constraint == constraint


def test_the_field_that_says_it_is_named() -> None:
    assert chat(response_format={"type": "json_object"}).constraint_param == "response_format"
    assert chat(structured_outputs={"regex": "a"}).constraint_param == "structured_outputs"


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"response_format": "json"}, "response_format", "it is no JSON object"),
        ({"response_format": {}}, "response_format.type", "missing"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'text', 'json_object' or 'json_schema'"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type", "'json_schema'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema is given where type is"),
        ({"response_format": named() | {"type": "json_object"}}, "response_format", "and only there"),
        ({"response_format": named(schema=None)}, "response_format.json_schema.schema", "missing"),
        ({"response_format": named(schema=True)}, "response_format.json_schema.schema", "a schema is an object"),
        ({"response_format": named(schema="{}")}, "response_format.json_schema.schema", "a schema is an object"),
        ({"response_format": named(name="a b")}, "response_format.json_schema.name", "pattern"),
        ({"response_format": named(name="n" * 65)}, "response_format.json_schema.name", "pattern"),
        ({"response_format": named(name=None)}, "response_format.json_schema.name", "missing"),
        ({"response_format": named(strict="yes")}, "response_format.json_schema.strict", "boolean"),
        ({"response_format": named(description="d" * 4097)}, "response_format.json_schema.description", "4096"),
        ({"response_format": named(example=1)}, "response_format.json_schema.example", "not a known field"),
        (
            {"response_format": named(schema={"a": "x" * MAX_CONSTRAINT_CHARACTERS})},
            "response_format.json_schema.schema",
            f"at most {MAX_CONSTRAINT_CHARACTERS} characters, not {MAX_CONSTRAINT_CHARACTERS + 8}",
        ),
        ({"structured_outputs": "json"}, "structured_outputs", "it is no JSON object"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one of json, json_object, regex, choice, grammar"),
        ({"structured_outputs": {"regex": None}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "json_object": True}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json": []}}, "structured_outputs.json", "a schema is an object"),
        ({"structured_outputs": {"json": "x" * (MAX_CONSTRAINT_CHARACTERS + 1)}}, "structured_outputs.json", "at most"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "True"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex", "at least 1"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", "string"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1"),
        ({"structured_outputs": {"choice": "yes"}}, "structured_outputs.choice", "list"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]", "string"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]", "at least 1"),
        ({"structured_outputs": {"choice": ["a"] * (MAX_CHOICES + 1)}}, "structured_outputs.choice", "at most 1024"),
        ({"structured_outputs": {"choice": ["a" * 40_000] * 2}}, "structured_outputs.choice", "together"),
        (
            {"structured_outputs": {"grammar": "g" * (MAX_GRAMMAR_CHARACTERS + 1)}},
            "structured_outputs.grammar",
            "16384",
        ),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
            "not a known field",
        ),
        (
            {"structured_outputs": {"json": {}, "disable_any_whitespace": True, "disable_fallback": True}},
            "structured_outputs.disable_any_whitespace",
            "not a known field",
        ),
    ],
)
def test_each_wrong_shape_names_its_field(fields: dict[str, Any], param: str, text: str) -> None:
    for model in (ChatCompletionRequest, CompletionRequest):
        error = refusal(fields, model)
        assert error.param == param
        assert text in error.message


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "response_format or structured_outputs, and not both",
        ),
        ({"structured_outputs": {"regex": "a"}, "use_beam_search": True}, "structured_outputs", "use_beam_search"),
        ({"response_format": {"type": "json_object"}, "use_beam_search": True}, "response_format", "use_beam_search"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos", "where response_format says"),
    ],
)
def test_what_it_cannot_be_combined_with(fields: dict[str, Any], param: str, text: str) -> None:
    for model in (ChatCompletionRequest, CompletionRequest):
        error = refusal(fields, model)
        assert (error.param, error.code) == (param, "invalid_value")
        assert text in error.message


def test_what_it_can_be_combined_with() -> None:
    wanted = {"structured_outputs": {"regex": "a"}, "best_of": 3, "n": 2, "seed": 1}
    assert completion(**wanted, echo=True).constraint is not None
    assert chat(structured_outputs={"regex": "a"}, stop="x", logprobs=True).constraint is not None
    assert chat(response_format={"type": "text"}, use_beam_search=True, ignore_eos=True).constraint is None


@pytest.mark.parametrize("name", ["guided_json", "guided_regex", "guided_choice", "guided_grammar"])
def test_older_names_are_refused_with_the_one_that_does_it(name: str) -> None:
    error = refusal({name: "a"})
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert error.message == f"'{name}' is not supported: use 'structured_outputs'"
    assert chat(**{name: None}) == chat()


def test_a_schema_that_is_nested_deeply_is_read_or_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"not": schema}
    assert chat(structured_outputs={"json": schema}).constraint == Constraint(
        "json_schema", msgspec.json.encode(schema).decode()
    )
