"""What `treadle bench offload --simulated` tells."""

from __future__ import annotations

import json

import click
from rich.table import Table

from cli.bench.beside import paper_rows
from cli.progress_bar import progress_bar
from cli.tables import print_table
from services.simulator.weaving.azure_conversations import azure_conversations
from services.simulator.weaving.figures import FULL, NUM_RUNS, QUICK, figures


def print_simulated(*, is_quick: bool, as_json: bool) -> None:
    """Run the evaluation and print it."""
    with progress_bar("points", NUM_RUNS) as show:
        found = figures(azure_conversations(), QUICK if is_quick else FULL, show)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=None)
    for name in ("figure", "what", "ours", "paper"):
        table.add_column(name, justify="right" if name in ("ours", "paper") else "left")
    for figure, values in found.items():
        for what, ours, paper in paper_rows(values):
            table.add_row(figure, what, f"{ours:,.4g}", _text(paper))
    print_table(table)


def _text(paper: float | tuple[float, ...]) -> str:
    """A number, or from where to where."""
    return "–".join(f"{one:,.4g}" for one in (paper if isinstance(paper, tuple) else (paper,)))
