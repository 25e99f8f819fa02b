"""`treadle bench pipeline`: what pipelines of overlapping operators are worth, beside NanoFlow's figures."""

from __future__ import annotations

import json
import time

import click
from rich.table import Table

from cli.bench.beside import paper_rows
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
        for what, ours, paper in paper_rows(values):
            table.add_row(figure, what, f"{ours:,.4g}", f"{paper:,.4g}")
    for figure, points in found["ceilings"].items():
        for point, ceiling in points.items():
            for what, ours in ceiling.items():
                table.add_row("ceilings", f"{figure} {point} {what}", f"{ours:,.4g}", "")
    print_table(table)
