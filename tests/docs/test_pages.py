"""Pages are as short as they promise, and their links lead to headings that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.config.config import parse_config
from tests.docs.rooms import ROOT

MAX_LINES = {"architecture.md": 250, "performance.md": 200}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Names of the headings of a page, as those who show Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", MAX_LINES)
def test_page_is_short(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text("utf-8").splitlines()) <= MAX_LINES[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [(page.parent / path if path else page, anchor) for path, anchor in LINK.findall(page.read_text("utf-8"))]
    assert [str(target) for target, _ in links if not target.exists()] == []
    assert [(target.name, anchor) for target, anchor in links if anchor and anchor not in anchors(target)] == []


def test_settings_for_those_who_come_from_elsewhere_are_a_cluster() -> None:
    page = (ROOT / "docs" / "coming_from.md").read_text("utf-8")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    config = parse_config(settings, "coming_from.md")
    assert [key.slo_classes for key in config.keys] == [["chat", "tools"], ["night"]]


def test_log_lists_each_of_its_pages() -> None:
    log = ROOT / "docs" / "log"
    listed = re.findall(r"^\| \[([^\]]+)\]\(\1\)", (log / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in log.glob("*.md") if path.name != "README.md")
