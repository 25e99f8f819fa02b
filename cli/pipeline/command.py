"""`treadle pipeline`, and its command `cost`."""

from __future__ import annotations

import json

import click
from rich.table import Table

from cli.errors import CliError
from cli.pipeline.options import chosen_machine, chosen_model, setup_options
from cli.pipeline.search import search
from cli.tables import print_table
from services.pipeline.reports.cost_report import cost_report
from shared.pipelines.batch import DenseBatch, MeanLengths


@click.group("pipeline")
def command() -> None:
    """See what bounds a model on a group of devices, and find the pipeline that overlaps its operators (NanoFlow)."""


command.add_command(search)


@command.command("cost")
@setup_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
def cost(model: str, device: str, num: int, rows: int, prompt_tokens: int, output_tokens: int, as_json: bool) -> None:
    """Show how long each operator takes by compute, memory and network, and which of them binds."""
    lengths = MeanLengths(prompt_tokens, output_tokens)
    if not output_tokens:
        raise CliError("--output-tokens: the memory that decodes need is part of the answer; give at least 1")
    report = cost_report(chosen_machine(device, num), chosen_model(model), DenseBatch(rows, lengths), lengths)
    if report["t_r"] <= 0:
        raise CliError(f"the weights of {model} do not fit {num} x {device}; give more with --num")
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    table = Table(box=None)
    columns = ("GFLOP", "memory GB", "network GB", "compute ms", "memory ms", "network ms")
    for name in ("operator", *columns):
        table.add_column(name, justify="left" if name == "operator" else "right")
    for row in (*report["operators"], {"name": "total", **report["totals"]}):
        sizes = (f"{row[key]:,.1f}" for key in ("gflop", "mem_gb", "net_gb"))
        times = (f"{row[key] * 1e3:.2f}" for key in ("t_compute_s", "t_mem_s", "t_net_s"))
        table.add_row(row["name"], *sizes, *times)
    print_table(table)
    click.echo(
        f"\nmemory : compute {report['t_r']:.2f} at the largest batch, network : compute {report['net_ratio']:.3f}; "
        f"at most {report['optimal_tok_s_per_device']:,.0f} tokens/s a device at {report['measured_tflops']:g} TFLOP/s"
    )
