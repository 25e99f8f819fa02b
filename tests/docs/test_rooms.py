"""The pages about the code name what is there: rooms, architecture, decisions and papers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.rooms import NO_LEVEL, PAGE, ROOT, dotted, first_sentence, is_pure, levels, modules, page, rooms

ARCHITECTURE = ROOT / "docs" / "architecture.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
SOURCES = (ROOT, ROOT / "gpu-node")  # what paths and names of modules are relative to
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]*)+")
DOTTED = re.compile(r"(?:shared|gateway|services|cli|gpu_node|tests|benchmarks)(?:\.\w+)+")


def table() -> dict[str, tuple[str, str]]:
    """Rooms of docs/architecture.md: each with its level, and whether it is pure."""
    rows = re.findall(r"^\| `([\w.]+)` \| (\d+|–) \| (yes)? ?\|", ARCHITECTURE.read_text("utf-8"), re.MULTILINE)
    assert len({room for room, _, _ in rows}) == len(rows), "a room stands there twice"
    return {room: (level, pure) for room, level, pure in rows}


def exists(name: str) -> bool:
    """Whether a path (with ``*`` for any characters) or the dotted name of a module is in the repository."""
    paths = [name.rstrip("/")] if "/" in name else [name.replace(".", "/"), name.replace(".", "/") + ".py"]
    return any(next(source.glob(path), None) is not None for source in SOURCES for path in paths)


def test_rooms_page_is_what_the_code_says() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.docs.rooms"


def test_every_module_stands_on_the_rooms_page_once() -> None:
    named = re.findall(r"^- `([\w.]+)`: \S", PAGE.read_text("utf-8"), re.MULTILINE)
    of_product = [
        dotted(path)
        for package in ("shared", "gateway", "services", "cli", "gpu-node/gpu_node")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    ]
    assert sorted(named) == sorted(of_product)


def test_every_room_and_module_says_what_it_is() -> None:
    files = [file for room in rooms() for file in (room / "__init__.py", *modules(room))]
    assert [dotted(file) for file in files if not first_sentence(file)] == []


def test_rooms_of_the_architecture_page_are_those_of_the_code() -> None:
    """Rooms of packages; of those that several processes are made of, the rooms of each part. Others: docs/rooms.md."""
    depths = {"shared": 2, "gateway": 2, "services": 3, "gpu_node": 3, "cli": 2}
    names = [dotted(room).split(".") for room in rooms()]
    assert sorted(table()) == sorted(".".join(name) for name in names if len(name) <= depths[name[0]])


def test_levels_and_purity_are_those_of_the_contracts() -> None:
    assert table() == {room: (levels().get(room, NO_LEVEL), "yes" if is_pure(room) else "") for room in table()}


@pytest.mark.parametrize("path", [ARCHITECTURE, *DECISIONS, ROOT / "docs" / "papers.md"], ids=lambda path: path.name)
def test_named_files_and_modules_exist(path: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", path.read_text("utf-8"))
    named = [span for span in spans if PATH.fullmatch(span) or DOTTED.fullmatch(span)]
    assert [name for name in named if not exists(name)] == []


def test_architecture_page_links_to_every_decisions_page() -> None:
    linked = re.findall(r"\]\(decisions/([^)]+)\)", ARCHITECTURE.read_text("utf-8"))
    assert sorted(linked) == [path.name for path in DECISIONS]
