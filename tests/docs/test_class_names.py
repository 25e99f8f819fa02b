"""One word, one thing: a public class, or a type by a name of its own, stands once in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.rooms import ROOT, dotted

PACKAGES = ("shared", "gateway", "services", "cli", "gpu-node/gpu_node")


def type_names(source: str) -> list[str]:
    """Public classes and aliases of types that a module defines. An alias is a name in capitals for another type."""
    names = []
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name):
                names.append(name)
            case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() | ast.BinOp() | ast.Name()):
                names.append(name)
    return [name for name in names if name[0].isupper() and name != name.upper()]


def defined(paths: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for name in type_names(path.read_text("utf-8")):
            found[name].append(dotted(path))
    return found


def test_a_public_class_name_is_defined_once() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = defined(paths)
    assert len(found) > 500, "the product is not where it is looked for"
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Step: ...", ["Step"]),
        ("class _Step: ...", []),
        ("Pages = list[int]\nKind = A | B\nT = TypeVar('T')\nMAX = A | B", ["Pages", "Kind"]),
        ("def f():\n    class Step: ...", []),
    ],
)
def test_what_counts_as_a_type_name(source: str, names: list[str]) -> None:
    assert type_names(source) == names


def test_a_name_that_stands_twice_is_found() -> None:
    bus = ROOT / "shared" / "bus" / "streams.py"
    slo = ROOT / "shared" / "messages" / "requests" / "slo.py"
    assert defined([slo, bus, slo])["Slo"] == ["shared.messages.requests.slo"] * 2
