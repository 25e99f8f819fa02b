"""Values, their schema and the README say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from helm.__main__ import README, SCHEMA, current_readme, current_schema, schema_text
from helm.cluster_schema import NOT_IN_VALUES, SECTIONS
from helm.readme import OF_KUBERNETES, resolved, target
from shared.config.config import ClusterConfig
from tests.helm import engine
from tests.helm.chart import DEFAULTS, VALUES

SCHEMA_NOW: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))


def objects(part: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that names properties; a property may itself have that name."""
    if isinstance(part, dict):
        if "properties" in part and not place.endswith(".properties"):
            yield place, part
        for key, inner in part.items():
            yield from objects(inner, f"{place}.{key}")
    elif isinstance(part, list):
        for number, inner in enumerate(part):
            yield from objects(inner, f"{place}.{number}")


def test_what_is_written_by_program_is_current() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text(current_schema()), "run `make helm-docs`"
    assert README.read_text("utf-8") == current_readme(), "run `make helm-docs`"


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA_NOW)
    for values in VALUES.values():
        Draft7Validator(SCHEMA_NOW).validate({**DEFAULTS, **values})


def test_nothing_is_taken_that_has_no_entry() -> None:
    found = dict(objects(SCHEMA_NOW))
    assert len(found) > len(SECTIONS)
    assert [place for place, part in found.items() if part.get("additionalProperties") is not False] == []


def test_every_value_is_described() -> None:
    undescribed = [
        f"{place}.{name}"
        for place, part in objects(SCHEMA_NOW)
        for name, value in part["properties"].items()
        if "description" not in resolved(value, SCHEMA_NOW) and not place.endswith(".resources")
    ]
    assert undescribed == []


def test_every_definition_is_used() -> None:
    text = SCHEMA.read_text("utf-8")
    assert [name for name in SCHEMA_NOW["$defs"] if f'"#/$defs/{name}"' not in text] == []


def compare(part: dict[str, Any], values: dict[str, Any], place: str = "") -> Iterator[str]:
    """Where values.yaml and the schema do not name the same values."""
    yield from (f"{place}{name}: in one of them only" for name in part["properties"].keys() ^ values.keys())
    for name in part["properties"].keys() & values.keys():
        reference = part["properties"][name]
        inner = resolved(reference, SCHEMA_NOW)
        is_whole = target(reference) in {*OF_KUBERNETES, *SECTIONS, "image"}
        if "properties" in inner and not is_whole:
            yield from compare(inner, values[name], f"{place}{name}.")


def test_values_and_schema_name_the_same_values() -> None:
    top = {
        **SCHEMA_NOW,
        "properties": {name: part for name, part in SCHEMA_NOW["properties"].items() if name != "global"},
    }
    assert list(compare(top, DEFAULTS)) == []


def test_sections_of_the_cluster_take_what_the_code_takes() -> None:
    code = ClusterConfig.model_json_schema()["$defs"]
    for name in SECTIONS:
        chart = set(SCHEMA_NOW["$defs"][name]["properties"])
        assert chart == set(code[name]["properties"]) - NOT_IN_VALUES.get(name, set())


def test_the_chart_covers_the_whole_configuration() -> None:
    """A new section of cluster.yaml needs a place in the values, or a reason to have none."""
    elsewhere = {"models", "pools", "keys", "redis_url", "otlp_endpoint"}  # values of their own
    of_one_machine = {"nodes", "admin_host", "admin_port", "data_dir", "offload"}  # pods share no memory
    cluster = set(SCHEMA_NOW["properties"]["cluster"]["properties"])
    assert cluster == ClusterConfig.model_fields.keys() - elsewhere - of_one_machine


@pytest.mark.parametrize("file", ["Chart.yaml", "values.yaml", "templates/NOTES.txt"])
def test_no_line_is_longer_than_a_screen(file: str) -> None:
    assert [line for line in (engine.CHART / file).read_text("utf-8").splitlines() if len(line) > 160] == []
