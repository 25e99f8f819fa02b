"""Writes docs/rooms.md: each room of the product with all its modules, by their own docstrings.

Run it with `python -m tests.docs.rooms`. It reads the sources and the import contracts as text and imports nothing of
the product.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rooms.md"
PACKAGES = ("shared", "gateway", "services", "gpu-node/gpu_node", "cli")
HEAD = """\
# Rooms

Every package and room (sub-package) with all its modules, each by the first sentence of its docstring. Written by
`python -m tests.docs.rooms`; a test holds the page to the code. What the rooms are for, what *level* and *pure* mean:
[architecture.md](architecture.md).
"""
NO_LEVEL = "–"


def rooms() -> Iterator[Path]:
    """Folders of packages, each before those inside it, sorted by name."""
    for package in PACKAGES:
        yield from sorted(path.parent for path in (ROOT / package).rglob("__init__.py"))


def modules(room: Path) -> list[Path]:
    """Files of the modules of one room; `__init__` stands for the room itself."""
    return sorted(path for path in room.glob("*.py") if path.name != "__init__.py")


def dotted(path: Path) -> str:
    """Name by which Python imports a room or a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("gpu-node.")


@cache
def contracts() -> list[dict[str, Any]]:
    """Import contracts of pyproject.toml."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return found


@cache
def levels() -> dict[str, str]:
    """Layer of each room and module that stands in a contract of layers: 1 is the lowest."""
    return {
        f"{contract['containers'][0]}.{room.strip()}": str(len(contract["layers"]) - index)
        for contract in contracts()
        if contract["type"] == "layers"
        for index, layer in enumerate(contract["layers"])
        for room in layer.split(":")
    }


def is_pure(room: str) -> bool:
    """Whether all of a room is held to reach no I/O, no clock and no chance."""
    pure = next(contract for contract in contracts() if contract["name"].startswith("Decisions reach no I/O"))
    return any(f"{room}.".startswith(f"{name}.") for name in pure["source_modules"])


def standing(room: str) -> str:
    """Level and purity, for a reader."""
    level = levels().get(room, NO_LEVEL)
    told = [] if level == NO_LEVEL else [f"level {level}"]
    told += ["pure"] if is_pure(room) else []
    return f" *{', '.join(told).capitalize()}.*" if told else ""


@cache
def first_sentence(path: Path) -> str:
    """What a module says of itself; without a docstring a test fails, so the page need not say so."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?]) +(?=[A-Z`*(])", paragraph, maxsplit=1)[0]


def page() -> str:
    """The whole text of docs/rooms.md."""
    parts = [HEAD]
    for room in rooms():
        sentence = first_sentence(room / "__init__.py")
        bullets = [f"- `{dotted(path)}`: {first_sentence(path)}\n" for path in modules(room)]
        parts.append(
            f"## `{dotted(room)}`\n\n{sentence}{standing(dotted(room))}\n"
            + "".join(["\n", *bullets] if bullets else [])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
