"""What two engine processes of this machine give, one of them with its attention on the other."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cli.errors import CliError
from cli.tables import print_table
from gpu_node.bench.offload.live_figures import BARS, live_figures
from gpu_node.bench.offload.live_plan import full_plans, quick_plan
from gpu_node.engine.border.links import LinkRefusedError
from services.simulator.weaving.azure_conversations import azure_conversations
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import ModelSpec
from shared.errors import OperatorError

SPEC = ModelSpec("smollm2-135m", SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256)


def print_live(*, is_quick: bool, as_json: bool) -> None:
    """Measure, and print. `CliError` for what the user can put right."""
    plans = [quick_plan()] if is_quick else full_plans(azure_conversations())
    with Console(stderr=True).status("engines") as status:
        try:
            found = live_figures(SPEC, plans, status.update)
        except (OperatorError, LinkRefusedError) as error:
            raise CliError(str(error)) from error
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_table(_table(found))


def _table(found: dict[str, Any]) -> Table:
    table = Table("what", "found", "bar", box=None)
    for name, value in found.items():
        if isinstance(value, float):
            sign, bar = BARS.get(name, ("", ""))
            table.add_row(name, f"{value:.3f}", f"{sign} {bar}".strip())
    for control, times in found["ablation"].items():
        table.add_row(
            f"{control}: hot, cold TPOT, ms", f"{times['hot_tpot_s'] * 1e3:.1f}, {times['cold_tpot_s'] * 1e3:.1f}"
        )
    for ratio, value in found["ratio_sweep"].items():
        table.add_row(f"throughput at ratio {ratio}", f"{value:.3f}")
    table.add_row("tokens_equal", str(found["tokens_equal"]))
    return table
