"""What `treadle bench offload --simulated` tells."""

from __future__ import annotations

import json

import click

from cli.bench.beside import beside_table
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
    print_table(beside_table(found))
