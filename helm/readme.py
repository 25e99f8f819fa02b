"""The chart's README: what is written in introduction.md, and tables of all values from their schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from helm.cluster_schema import SECTIONS, Schema

HEAD = "<!-- Written by `make helm-docs` from introduction.md, values.yaml and values.schema.json. Edit those. -->\n"
NOT_READ = "global"  # Helm's own
OF_KUBERNETES = {"resources", "podSecurityContext"}  # shapes that everybody knows are not taken apart


def readme(introduction: str, values: dict[str, Any], schema: Schema) -> str:
    """The whole page."""
    groups = _alike(values, schema)
    whole = [names for names in groups if len(_rows(names[0], values, schema)) == 1]
    general = [row for names in whole for row in _rows(names[0], values, schema)]
    parts = [HEAD, introduction, "## Values\n", f"### General{_table('Value', general)}"]
    parts += [_section(names, values, schema) for names in groups if names not in whole]
    parts.append("## In the words of cluster.yaml\n")
    parts += [_fields(name, schema) for name in SECTIONS]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def target(part: Schema) -> str:
    """Name of the definition that ``part`` refers to; empty when it stands for itself."""
    return str(part.get("$ref", "")).removeprefix("#/$defs/")


def resolved(part: Schema, schema: Schema) -> Schema:
    """``part`` with what its reference says; what it says itself comes first."""
    name = target(part)
    return {**schema["$defs"][name], **part} if name else part


def leaves(part: Schema, values: dict[str, Any], schema: Schema, above: str = "") -> Iterator[tuple[str, Schema, Any]]:
    """Path, schema and default of every value below an object."""
    for name, reference in part["properties"].items():
        if name not in values and name == NOT_READ:
            continue
        inner, default = resolved(reference, schema), values[name]
        if "properties" in inner and default and target(reference) not in OF_KUBERNETES:
            yield from leaves(inner, default, schema, f"{above}{name}.")
        else:
            yield f"{above}{name}", reference, default


def _alike(values: dict[str, Any], schema: Schema) -> list[list[str]]:
    """Names at the top, those that have the same schema and the same defaults together."""
    names = [name for name in schema["properties"] if name != NOT_READ]
    pairs = {name: (target(schema["properties"][name]) or name, json.dumps(values[name])) for name in names}
    return [list(group) for _, group in groupby(names, pairs.__getitem__)]


def _section(names: list[str], values: dict[str, Any], schema: Schema) -> str:
    """A heading and the values below it; of several that are alike the first stands for all."""
    first = names[0]
    part = schema["properties"][first]
    text = (schema["$defs"][target(part)] if len(names) > 1 else resolved(part, schema))["description"]
    rows = _rows(first, values, schema) + (_pool_rows(schema) if first == "gpuNode" else [])
    return f"### {', '.join(f'`{name}`' for name in names)}\n\n{text}{_table('Value', rows)}"


def _rows(name: str, values: dict[str, Any], schema: Schema) -> list[str]:
    """Everything at and below a value at the top."""
    part = {"properties": {name: schema["properties"][name]}}
    return [_row(path, inner, default, schema) for path, inner, default in leaves(part, values, schema)]


def _pool_rows(schema: Schema) -> list[str]:
    """What a pool has beside what all pools have in common."""
    common = schema["properties"]["gpuNode"]["properties"]
    own = {name: part for name, part in schema["$defs"]["pool"]["properties"].items() if name not in common}
    rest = "| `gpuNode.pools[].…` | | Everything above but `pools`: what differs in this pool. |\n"
    return [*(_row(f"gpuNode.pools[].{name}", part, None, schema) for name, part in own.items()), rest]


def _fields(name: str, schema: Schema) -> str:
    """The fields of one section of cluster.yaml."""
    section = schema["$defs"][name]
    fields = section["properties"].items()
    rows = [_row(field, part, part.get("default"), schema) for field, part in fields]
    return f"### {name}\n\n{section['description']}{_table('Field', rows)}"


def _table(first: str, rows: list[str]) -> str:
    return f"\n\n| {first} | Default | What it is |\n|---|---|---|\n{''.join(rows)}"


def _row(path: str, part: Schema, default: Any, schema: Schema) -> str:
    shown = "" if default is None else f"`{json.dumps(default, ensure_ascii=False)}`"
    return f"| `{path}` | {shown} | {_words(part, schema)} |\n"


def _words(part: Schema, schema: Schema) -> str:
    """What a value is, what may stand there, and where more is said."""
    whole = resolved(part, schema)
    words: str = whole["description"]
    if "enum" in whole:
        words += " One of " + ", ".join(f"`{choice}`" for choice in whole["enum"]) + "."
    items = whole.get("items", whole.get("additionalProperties"))
    name = target(part) or (target(items) if isinstance(items, dict) else "")
    if name in SECTIONS:
        words += f" See [{name}](#{name.lower()})."
    elif "properties" in whole and name not in OF_KUBERNETES:
        words += " Fields: " + ", ".join(f"`{field}`" for field in whole["properties"]) + "."
    return words.replace("|", "\\|")
