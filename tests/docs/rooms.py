"""Writes docs/rooms.md: each room of the product with all its modules, by their own docstrings.

Run it with `python -m tests.docs.rooms`. It reads the sources as text and imports nothing of the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rooms.md"
PACKAGES = ("shared", "gateway", "services", "gpu-node/gpu_node", "cli")
HEAD = """\
# Rooms

Every package and room (sub-package) with all its modules, each by the first sentence of its docstring. Written by
`python -m tests.docs.rooms`; a test holds the page to the code. What the rooms are for and what each may import:
[architecture.md](architecture.md).
"""


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
        parts.append(f"## `{dotted(room)}`\n\n{sentence}\n" + "".join(["\n", *bullets] if bullets else []))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
