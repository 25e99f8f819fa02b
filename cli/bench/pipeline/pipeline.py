"""`treadle bench pipeline`: what pipelines of overlapping operators are worth, beside NanoFlow's figures."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from cli.bench.beside import beside_table
from cli.bench.pipeline.pipeline_live import bench_live
from cli.config.option import config_option
from cli.errors import CliError
from cli.progress_bar import progress_bar
from cli.tables import print_table
from services.pipeline.reports.figures import NUM_SEARCHES, figures
from services.pipeline.search.search import FULL, QUICK
from shared.config.config import load_config


@click.command("pipeline")
@config_option
@click.option("--predicted", is_flag=True, help="NanoFlow's figures on A100, by prediction.")
@click.option("--quick", is_flag=True, help="Less of everything: under a minute.")
@click.option("--keep", is_flag=True, help="Let `engine.pipeline: auto` find what was measured here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def pipeline(config_file: Path | None, predicted: bool, quick: bool, keep: bool, as_json: bool) -> None:
    """Measure a pipeline on the CPU device, two threads, beside one operator after another and beside its prediction.

    The first model of the configuration. With ``--predicted``, NanoFlow's figures 2, 3, 7, 9, 10 and 11 instead.
    """
    if not predicted:
        bench_live(load_config(config_file), quick=quick, as_json=as_json, keep=keep)
        return
    if keep:
        raise CliError("--keep: the figures are of devices that are not here; see `treadle pipeline search --output`")
    with progress_bar("pipelines", NUM_SEARCHES) as show:
        found = figures(QUICK if quick else FULL, time.monotonic, show)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = beside_table(found)
    for figure, points in found["ceilings"].items():
        for point, ceiling in points.items():
            for what, ours in ceiling.items():
                table.add_row("ceilings", f"{figure} {point} {what}", f"{ours:,.4g}", "")
    print_table(table)
