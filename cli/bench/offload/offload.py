"""`treadle bench offload`: a hot model's attention on the devices of cold models."""

from __future__ import annotations

import click

from cli.bench.offload.offload_live import print_live
from cli.bench.offload.offload_simulated import print_simulated


@click.command("offload")
@click.option("--simulated", is_flag=True, help="Weaver's figures on two A100, by prediction.")
@click.option("--quick", is_flag=True, help="One short run of each point; of the live form, no sweep.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def offload(simulated: bool, quick: bool, as_json: bool) -> None:
    """Show what offloading attention is worth between two engines, or by prediction beside Weaver's figures."""
    if simulated:
        print_simulated(is_quick=quick, as_json=as_json)
    else:
        print_live(is_quick=quick, as_json=as_json)
