"""`treadle down`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.cluster.run_dir import RunDir
from cli.cluster.state import ClusterState
from cli.config.option import config_option
from shared.config.config import load_config
from shared.processes.node_processes import find_nodes
from shared.processes.processes import stop


@click.command("down")
@config_option
def command(config_file: Path | None) -> None:
    """Stop everything that `treadle up` started, nodes of pools included, and nothing else.

    What Redis holds stays on disk for the next start.
    """
    run_dir = RunDir(load_config(config_file))
    if not run_dir.has_state():
        click.echo(f"nothing runs in {run_dir.root}")
        return
    with run_dir.lock():
        state = ClusterState.load(run_dir.state_file)
        pool_nodes = find_nodes(str(run_dir.config_file))
        running = [*state.running(), *pool_nodes]
        stop([*state.processes.values(), *pool_nodes.values()])  # the dead as well: they may have left children
        stop(find_nodes(str(run_dir.config_file)).values())  # what the scheduler has started again in the meantime
        state.processes.clear()
        state.save(run_dir.state_file)
    click.echo(f"stopped: {', '.join(reversed(running))}" if running else f"nothing runs in {run_dir.root}")
