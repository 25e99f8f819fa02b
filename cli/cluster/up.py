"""`treadle up`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
from rich.console import Console

from cli.cluster.run_dir import RunDir
from cli.cluster.start.start import ClusterStart
from cli.cluster.start.start_display import StartDisplay
from cli.config.check import check_start
from cli.config.option import config_option
from cli.errors import ClusterError
from cli.finite_range import FiniteRange
from cli.models.pull import pull_models
from shared.config.addresses import gateway_url
from shared.config.config import ClusterConfig, load_config

READY_TIMEOUT_S = 120.0  # a cold disk takes a while to give up torch and the weights


@click.command("up")
@config_option
@click.option("--wait-s", type=FiniteRange(min=0.1), default=READY_TIMEOUT_S, show_default=True, help="Patience.")
def command(config_file: Path | None, wait_s: float) -> None:
    """Start the cluster, or what is missing of it, and wait until it serves.

    Processes run in the background until `treadle down`; what runs already is left alone.
    """
    config = load_config(config_file)
    run_dir = RunDir(config)
    console = Console(stderr=True)
    run_dir.create()
    with run_dir.lock():
        pull_models(config, console)
        check_start(config)
        try:
            with StartDisplay(console) as display:
                started = ClusterStart(config, run_dir, display).run(wait_s)
        except ClusterError as error:
            raise ClusterError(f"{error.message}\nall of the logs: {run_dir.logs}, or `treadle logs`") from error
    console.print(f"started: {', '.join(started)}" if started else "everything ran already", highlight=False)
    console.print(f"logs: {run_dir.logs}, or `treadle logs -f`", highlight=False, markup=False, soft_wrap=True)
    click.echo(f"Treadle serves at {gateway_url(config)}. Try:\n\n  {example_request(config)}\n")


def example_request(config: ClusterConfig) -> str:
    """A command that works as it stands, but for the key, which is not ours to show."""
    body = {
        "model": config.models[0].name,
        "messages": [{"role": "user", "content": "What is a treadle?"}],
        "max_tokens": 48,
    }
    key = ' -H "authorization: Bearer $TREADLE_API_KEY"' if config.keys else ""
    url = f"{gateway_url(config)}/v1/chat/completions"
    return f"curl -s {url} -H 'content-type: application/json'{key} -d {shlex.quote(json.dumps(body))}"
