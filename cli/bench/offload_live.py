"""What two engine processes of this machine give, one of them with its attention on the other."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from cli.errors import CliError
from cli.tables import print_table
from gpu_node.bench.offload.live import FULL, QUICK, live_figures
from gpu_node.engine.border.links import LinkRefusedError
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engine import ModelSpec
from shared.errors import OperatorError

SPEC = ModelSpec("smollm2-135m", SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256)


def print_live(*, is_quick: bool, as_json: bool) -> None:
    """Measure, and print. `CliError` for what the user can put right."""
    with Console(stderr=True).status("two engines") as status:
        try:
            found = live_figures(SPEC, QUICK if is_quick else FULL, status.update)
        except (OperatorError, LinkRefusedError) as error:
            raise CliError(str(error)) from error
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table("what", "found", box=None)
    for name, value in found.items():
        if isinstance(value, float):
            table.add_row(name, f"{value:.3f}")
    for ratio, value in found["ratio_sweep"].items():
        table.add_row(f"throughput at ratio {ratio}", f"{value:.3f}")
    table.add_row("tokens_equal", str(found["tokens_equal"]))
    print_table(table)
