"""What the pages tell a reader to type is understood: commands of `treadle`, and settings of cluster.yaml."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from cli.main import main
from helm.__main__ import README as CHART_README
from shared.config.config import parse_config
from tests.docs.rooms import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "data" / "README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?:\.venv/bin/)?treadle (.+)$", re.MULTILINE)
OTHERS = ("scrape_configs:",)  # the first key of what is no cluster.yaml: Prometheus's


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text("utf-8")) if found == language]


def commands(page: Path) -> list[str]:
    """Arguments of `treadle`, without comments, pipes and what goes on in another file."""
    text = "\n".join(blocks(page, "console")).replace("\\\n", " ")
    return [re.split(r"\s+[#|>&]", found)[0] for found in COMMAND.findall(text)]


def understand(arguments: list[str]) -> None:
    """Parse arguments as `treadle` would, and run nothing; `click.UsageError` where it knows none like that."""
    command: click.Command = main
    context = click.Context(main, info_name="treadle")
    while isinstance(command, click.Group):
        name, *arguments = arguments
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(context.info_name, arguments, parent=context.parent)


COMMANDS = [(page.name, found) for page in PAGES for found in commands(page)]
SETTINGS = [(page.name, text) for page in PAGES for text in blocks(page, "yaml") if not text.startswith(OTHERS)]


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value[:40])
def test_a_command_is_one_of_treadle(page: str, command: str) -> None:
    understand(shlex.split(command))


@pytest.mark.parametrize(("page", "settings"), SETTINGS, ids=lambda value: value[:20])
def test_settings_are_a_cluster(page: str, settings: str) -> None:
    parse_config(settings.replace("3b1f…", "3b1f" * 16), page)


def test_there_are_some() -> None:
    assert len(COMMANDS) > 10
    assert len(SETTINGS) > 8
    assert CHART_README not in PAGES, "its settings are values of the chart: tests/helm"


@pytest.mark.parametrize("command", ["bench nothing", "sim run --workload wa --no-such-option", "plan", "config check"])
def test_a_command_that_there_is_not_is_found(command: str) -> None:
    with pytest.raises(click.UsageError):
        understand(shlex.split(command))
