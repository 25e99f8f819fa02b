"""`treadle bench`, and its command `serve`."""

from __future__ import annotations

import json
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.bench.engine import engine
from cli.bench.load.serve import LoadResult, LoadSpec, run_load, served_models
from cli.bench.memory.conversations import conversations
from cli.bench.memory.memory import memory
from cli.bench.memory.paging import paging
from cli.bench.offload.offload import offload
from cli.bench.percentiles import PERCENTS
from cli.bench.pipeline.pipeline import pipeline
from cli.bench.vllm.vllm import vllm
from cli.errors import CliError
from cli.tables import print_table
from shared.processes import open_files

SPARE_FILES = 64  # beside one a client
_AT_LEAST_ONE = click.IntRange(min=1)


@click.group("bench")
def command() -> None:
    """Measure a running cluster, one engine alone, or the bookkeeping on a trace."""


command.add_command(conversations)
command.add_command(engine)
command.add_command(memory)
command.add_command(offload)
command.add_command(paging)
command.add_command(pipeline)
command.add_command(vllm)


@command.command("serve")
@click.option("--url", required=True, help="Address of a server, such as http://127.0.0.1:8080.")
@click.option("--model", "models", multiple=True, help="Model to ask; several are asked in turn. Default: the first.")
@click.option("--api-key", envvar="TREADLE_API_KEY", help="Key to send (or set TREADLE_API_KEY).")
@click.option("--requests", "num_requests", type=_AT_LEAST_ONE, default=32, show_default=True)
@click.option("--concurrency", type=_AT_LEAST_ONE, default=4, show_default=True, help="Clients at a time.")
@click.option("--prompt-tokens", type=_AT_LEAST_ONE, default=64, show_default=True, help="Length of a prompt, about.")
@click.option("--max-tokens", type=_AT_LEAST_ONE, default=32, show_default=True, help="Length of an answer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@click.pass_context
def serve(ctx: click.Context, /, url: str, models: tuple[str, ...], as_json: bool, **load: Any) -> None:
    """Load a server with streaming completions and report latency percentiles and rates.

    Each client sends its next request when the last one is answered. Exit status 1 if no request succeeded.
    """
    result = uvloop.run(_measure(url.rstrip("/"), models, load))
    for example in result.examples:
        click.echo(f"failed: {example}", err=True)
    report = result.to_json()
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    ctx.exit(0 if result.completions else 1)


async def _measure(url: str, models: tuple[str, ...], load: dict[str, Any]) -> LoadResult:
    _check_open_files(load["concurrency"])
    asked = models or tuple((await served_models(url, load["api_key"]))[:1])
    spec = LoadSpec(url=url, models=asked, **load)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{spec.concurrency} clients", total=spec.num_requests)
        return await run_load(spec, lambda: progress.advance(task))


def _check_open_files(concurrency: int) -> None:
    most = open_files.allow_all()
    if concurrency + SPARE_FILES > most:
        raise CliError(
            f"{concurrency} clients need {concurrency + SPARE_FILES} open files, and this process may have {most}; "
            "raise that limit (`ulimit -Hn`), or ask for less with --concurrency"
        )


def _print(report: dict[str, Any]) -> None:
    click.echo(
        f"{report['succeeded']} of {report['requests']} requests, {report['concurrency']} clients, "
        f"{report['duration_s']:.2f} s: {report['requests_per_s']:.2f} requests/s, "
        f"{report['output_tokens_per_s']:.1f} output tokens/s"
    )
    if report["errors"]:
        click.echo("errors: " + ", ".join(f"{kind} × {count}" for kind, count in report["errors"].items()))
    names = ("mean", *(f"p{percent}" for percent in PERCENTS))
    table = Table("ms", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for label, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s")):
        found = report[key]
        table.add_row(label, *(f"{found[name] * 1000:.1f}" if found else "–" for name in names))
    print_table(table)
