"""docs/api.md says what the OpenAPI document says: the same paths, fields, defaults and error codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.anthropic.requests import UNSUPPORTED
from gateway.document.openapi import openapi_document
from gateway.document.request_schemas import NOT_SUPPORTED
from gateway.http.anthropic_errors import TYPES
from gateway.openai.requests.schema import INERT
from gateway.responses.requests.request import INERT_FIELDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
DOCUMENT = openapi_document("0", has_keys=True, has_batches=True)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
REQUESTS = ("ChatCompletionRequest", "CompletionRequest")
OF_AIOHTTP = {"not_found", "method_not_allowed", "request_entity_too_large"}  # made of its reasons


def table(mark: str) -> list[list[str]]:
    """Cells of the rows of the table behind a mark."""
    _, found, rest = PAGE.partition(f"<!-- {mark} -->\n")
    assert found, mark
    lines = rest.split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def documented(schema: str) -> dict[str, str]:
    """Fields of a schema on the page, each with its default."""
    rows = [*(table("fields: both") if schema in REQUESTS else []), *table(f"fields: {schema}")]
    fields = {cells[0].strip("`"): cells[1] for cells in rows}
    assert len(fields) == len(rows), "a field stands there twice"
    return fields


def supported(schema: str) -> list[str]:
    """Fields that may ask for something."""
    properties: dict[str, Any] = SCHEMAS[schema]["properties"]
    return [name for name, field in properties.items() if field.get("description") != NOT_SUPPORTED]


def default_of(schema: dict[str, Any], name: str) -> str:
    if name in schema.get("required", []):
        return "required"
    default = schema["properties"][name].get("default", schema["properties"][name].get("const"))
    if isinstance(default, str):
        return f"`{default}`"
    return "–" if default in (None, {}, []) else str(default).lower()


@pytest.mark.parametrize("schema", re.findall(r"<!-- fields: ([A-Z]\w+) -->", PAGE))
def test_fields_and_defaults_are_those_of_the_document(schema: str) -> None:
    expected = {name: default_of(SCHEMAS[schema], name) for name in supported(schema)}
    assert documented(schema) == expected


def test_what_clients_write_is_all_there() -> None:
    shown = set(re.findall(r"<!-- fields: ([A-Z]\w+) -->", PAGE))
    answers = {"QueueReport", "QueueEntry", "TokenizeAnswer"}
    parts = {
        "ChatMessage",
        "StreamOptions",
        "SloNumbers",
        "ResponseFormat",
        "NamedSchema",
        "StructuredOutputs",
        "Function",
        "InputMessage",
        "InputCall",
        "InputCallOutput",
        "InputReasoning",
        "ClientTool",
        "BatchRequest",
    }
    assert {
        *REQUESTS,
        "ResponsesRequest",
        "MessagesRequest",
        "EmbeddingRequest",
        "RerankRequest",
        "ScoreRequest",
        "ClassifyRequest",
        "TokenizeRequest",
        *parts,
        *answers,
    } == shown


def test_paths() -> None:
    shown = set(re.findall(r"`(?:GET|POST|DELETE) (/[^`]+)`", PAGE)) - {"/openapi.json"}
    assert shown == set(DOCUMENT["paths"])


def test_fields_that_are_refused() -> None:
    _, _, behind = PAGE.partition("these are not there yet and are refused")
    shown = re.findall(r"`(\w+)`", behind.split("\n\n", 1)[0])
    assert shown == sorted(INERT.keys() - {name for schema in REQUESTS for name in supported(schema)})


def test_fields_of_responses_that_are_refused() -> None:
    _, _, behind = PAGE.partition("Refused unless they ask for nothing:")
    assert re.findall(r"`(\w+)`", behind.split("\n\n", 1)[0]) == sorted(INERT_FIELDS)


def test_fields_of_messages_that_are_refused() -> None:
    _, _, behind = PAGE.partition("Fields of Anthropic's that are refused unless they ask for nothing:")
    assert re.findall(r"`(\w+)`", behind.split("\n\n", 1)[0]) == sorted(UNSUPPORTED)


def test_fields_of_a_count() -> None:
    _, _, behind = PAGE.partition("**`/v1/messages/count_tokens`** takes ")
    shown = re.findall(r"`(\w+)`", behind.split(", and says", 1)[0])
    assert sorted(shown) == sorted(supported("CountTokensRequest"))


def test_types_of_anthropic_s_errors() -> None:
    _, _, behind = PAGE.partition("`type` is `authentication_error`")
    shown = {int(status): kind for kind, status in re.findall(r"`(\w+)`\s\((\d+)\)", "`authentication_error`" + behind)}
    assert shown == {status: TYPES[status] for status in TYPES} | {500: "api_error"}


def test_codes_are_those_that_the_gateway_answers_with() -> None:
    sources = "".join(path.read_text("utf-8") for path in sorted((ROOT / "gateway").rglob("*.py")))
    named = set(re.findall(r'code(?:: str)? ?= ?"(\w+)"', sources))
    service = "".join(path.read_text("utf-8") for path in sorted((ROOT / "services" / "batches").rglob("*.py")))
    named |= set(re.findall(r'RefusedError\(\s*\d+,\s*"(\w+)"', service)) - {"wrong_token"}  # between the two
    reasons = {reason.replace("-", "_") for reason in re.findall(r'"(saturated|ttl-expired|no-endpoints)"', sources)}
    rows = table("codes")
    assert {cells[1].strip("`") for cells in rows} == named | reasons | OF_AIOHTTP
    assert [int(cells[0]) for cells in rows] == sorted(int(cells[0]) for cells in rows)


def test_the_readme_names_the_fields_that_are_taken_and_not_used() -> None:
    names = [cells[0] for cells in table("fields: both")]
    first = next(place for place, cells in enumerate(table("fields: both")) if "not used, like the next" in cells[2])
    unused = names[first:]
    assert len(unused) == 5
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in unused if name not in readme] == []
