"""`treadle bench pipeline`: what pipelines of overlapping operators are worth, beside NanoFlow's figures."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.table import Table

from cli.errors import CliError
from cli.progress_bar import progress_bar
from cli.tables import print_table
from services.pipeline.figures import NUM_SEARCHES, figures
from services.pipeline.search import FULL, QUICK


@click.command("pipeline")
@click.option("--predicted", is_flag=True, help="NanoFlow's figures on A100, by prediction.")
@click.option("--quick", is_flag=True, help="Some seconds of search for each pipeline instead of minutes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def pipeline(predicted: bool, quick: bool, as_json: bool) -> None:
    """Predict NanoFlow's figures 2, 3, 7, 9, 10 and 11, and show them beside the paper's."""
    if not predicted:
        raise CliError("no engine runs pipelines yet; give --predicted")
    with progress_bar("pipelines", NUM_SEARCHES) as show:
        found = figures(QUICK if quick else FULL, time.monotonic, show)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=None)
    for name in ("figure", "what", "ours", "paper"):
        table.add_column(name, justify="right" if name in ("ours", "paper") else "left")
    for figure, values in found.items():
        for what, ours, paper in _rows(values):
            table.add_row(figure, what, f"{ours:,.4g}", "" if paper is None else f"{paper:,.4g}")
    print_table(table)


_Row = tuple[str, float, float | None]
"""What, ours, the paper's."""


def _rows(values: dict[str, Any], prefix: str = "") -> list[_Row]:
    """Every number that the paper has too, and ceilings, which stand alone."""
    if set(values) == {"ours", "paper"}:
        return _pairs(values["ours"], values["paper"], prefix)
    if all(isinstance(value, float) for value in values.values()):
        return [(f"{prefix} {name}", value, None) for name, value in values.items()]
    return [row for name, inner in values.items() for row in _rows(inner, f"{prefix} {name}".strip())]


def _pairs(ours: Any, paper: Any, prefix: str) -> list[_Row]:
    if not isinstance(paper, dict):
        return [(prefix, ours, paper)]
    return [row for name in paper for row in _pairs(ours[name], paper[name], f"{prefix} {name}".strip())]
