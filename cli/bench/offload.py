"""`treadle bench offload`: a hot model's attention on the devices of cold models."""

from __future__ import annotations

import click

from cli.bench.offload_live import print_live


@click.command("offload")
@click.option("--quick", is_flag=True, help="One short run of each point, and no sweep.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def offload(quick: bool, as_json: bool) -> None:
    """Show what offloading attention is worth between two engine processes of one core each."""
    print_live(is_quick=quick, as_json=as_json)
