"""`treadle status`: the processes of the cluster, as a table or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from cli.cluster.processes.process_status import DEAD, READY, ProcessStatus, cluster_status
from cli.cluster.run_dir import RunDir
from cli.config.option import config_option
from cli.tables import print_table
from shared.config.config import load_config

_COLOURS = {READY: "green", DEAD: "red"}


@click.command("status")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@click.pass_context
def command(ctx: click.Context, config_file: Path | None, as_json: bool) -> None:
    """Show each process of the cluster. Exit status 0 if all of them are ready, else 1."""
    config = load_config(config_file)
    found = cluster_status(config, RunDir(config))
    if as_json:
        click.echo(json.dumps({"processes": [asdict(process) for process in found]}, indent=2))
    else:
        print_table(_table(found))
    ctx.exit(0 if all(process.state == READY for process in found) else 1)


def _table(found: list[ProcessStatus]) -> Table:
    table = Table("name", "state", "device", "model", box=None, pad_edge=False)
    has_phases = any(process.phases for process in found)
    if has_phases:
        table.add_column("serves")
    for heading in ("pid", "uptime", "memory", "running", "waiting", "kv used"):
        table.add_column(heading, justify="right")
    for process in found:
        state = f"[{_COLOURS.get(process.state, 'yellow')}]{process.state}[/]"
        table.add_row(
            escape(process.name),
            f"{state} ({escape(process.waits_for)})" if process.waits_for else state,
            escape(_text(process.device)),
            escape(_text(process.model)),
            *([_text(process.phases)] if has_phases else []),
            _text(process.pid),
            "–" if process.uptime_s is None else _duration(process.uptime_s),
            "–" if process.rss_bytes is None else f"{process.rss_bytes / (1 << 20):.0f} MiB",
            _text(process.num_running),
            _text(process.num_waiting),
            "–" if process.kv_used is None else f"{process.kv_used:.0%}",
        )
    return table


def _text(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s"
