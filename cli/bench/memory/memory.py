"""`treadle bench memory`: what becomes of requests that have to give way, by policy, in too little memory."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.bench.memory.memory_summary import summary
from cli.bench.process import lines_of
from cli.config.option import config_option
from cli.models.argument import find_model
from cli.tables import print_table
from gpu_node.bench.report import MemoryRow, PointProgress, ProfileStart
from shared.config.config import ClusterConfig, load_config

FORMS = ("paper", "chunked", "cpu")


@click.command("memory")
@config_option
@click.option("--form", "forms", multiple=True, type=click.Choice(FORMS), help="Several may be given.  [default: all]")
@click.option("--quick", is_flag=True, help="Few requests on predicted devices; the CPU only where it is asked for.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def memory(config_file: Path | None, forms: tuple[str, ...], quick: bool, seed: int, as_json: bool) -> None:
    """Compare preemption, order and admission: the same requests in 128 blocks of device and 64 of host memory.

    AdaptiveLLM's evaluation: three samples of prompts, limits from 32 to 256 tokens. ``paper``: a predicted A800,
    prompts in steps of their own, swaps in the computing queue; ``chunked``: the same device, prompts in chunks beside
    decodes, swaps beside both; ``cpu``: the first model of the configuration, really computed.
    """
    config = load_config(config_file)
    asked = forms or (FORMS[:2] if quick else FORMS)
    if "cpu" in asked:
        spec = find_model(config.models[0].name, config)
        config = config.model_copy(update={"models": [spec, *config.models[1:]]})
    arguments = ["--forms", ",".join(asked), "--seed", str(seed), *(["--quick"] if quick else [])]
    rows = _rows(config, arguments)
    report = {"seed": seed, "quick": quick, "rows": [_fields(row) for row in rows], "summary": summary(rows)}
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    print_table(_table(rows))
    click.echo(json.dumps(report["summary"], indent=2))


def _rows(config: ClusterConfig, arguments: list[str]) -> list[MemoryRow]:
    """With a progress bar on stderr where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task("starting", total=None)
    rows = []
    with progress, closing(lines_of(config, arguments, module="gpu_node.bench.memory")) as lines:
        for line in lines:
            match line:
                case ProfileStart():
                    progress.update(task, total=line.num_rows)
                case PointProgress():
                    progress.update(task, description=line.doing, advance=line.num_rows)
                case MemoryRow():
                    rows.append(line)
                case _:
                    raise AssertionError(f"no part of this: {line}")
    return rows


def _fields(row: MemoryRow) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(row).items() if name != "kind"}


def _table(rows: list[MemoryRow]) -> Table:
    """A row each."""
    table = Table("form", "model", box=None, pad_edge=False)
    for heading in ("in", "limit"):
        table.add_column(heading, justify="right")
    for heading in ("policy", "order", "admission"):
        table.add_column(heading)
    for heading in ("requests/s", "turnaround", "preempted", "swapped", "recomputed", "decisions"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.form,
            row.model,
            str(row.input_tokens),
            str(row.max_tokens),
            row.policy,
            row.order,
            row.admission,
            f"{row.requests_per_s:.2f}",
            f"{row.weighted_turnaround:.2f}",
            str(row.preemptions),
            str(row.swapped),
            str(row.recomputed),
            f"{row.decision_share:.2%}",
        )
    return table
