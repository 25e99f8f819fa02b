"""`treadle apply`."""

from __future__ import annotations

import time
from pathlib import Path

import click
import yaml
from rich.console import Console

from cli.cluster.health import known_state
from cli.cluster.process_plan import GATEWAY, ProcessSpec, process_plan
from cli.cluster.run_dir import RunDir, write_atomically
from cli.cluster.state import ClusterState
from cli.config.model_check import check_models
from cli.config.option import config_option
from cli.config.yaml import process_yaml
from cli.errors import CliError
from cli.models.pull import pull_models
from shared.config.config import ClusterConfig, load_config, parse_config
from shared.config.engines.model_changes import KnownModels
from shared.config.reading.problems import listed

LIVE_SECTIONS = ("models", "keys")
"""What processes read again while they run."""

WAIT_S = 120.0  # for gateways to read the tokenizers of new models
OLD_PROBLEM_S = 10.0  # what is wrong then is wrong with this file, and not with the one before
POLL_S = 0.2


@click.command("apply")
@config_option
def command(config_file: Path | None) -> None:
    """Have the running cluster take over models, adapters and keys that have come, changed their aliases, or gone.

    Nothing is restarted: requests in flight are answered, those of models and adapters that have gone, too.
    """
    config = load_config(config_file)
    run_dir = RunDir(config)
    if not run_dir.has_state():
        raise CliError(f"nothing runs in {run_dir.root}: `treadle up` starts the cluster")
    with run_dir.lock():
        if GATEWAY not in ClusterState.load(run_dir.state_file).running():
            raise CliError(f"no gateway runs in {run_dir.root}: `treadle up` starts what is missing")
        text = process_yaml(config)
        _check(run_dir.config_file, text)
        pull_models(config, Console(stderr=True))
        if problems := check_models(config).problems:
            raise CliError(f"nothing was applied: {listed(problems)}")
        write_atomically(run_dir.config_file, text)
        served = _wait(config, next(spec for spec in process_plan(config) if spec.name == GATEWAY))
    click.echo(f"served: {', '.join(served)}")


def _check(file: Path, text: str) -> None:
    """All but what is read again is as the cluster was started with it, and names stand for what they stood for."""
    running, wanted = yaml.safe_load(file.read_text()), yaml.safe_load(text)
    differing = [name for name in wanted if name not in LIVE_SECTIONS and running.get(name) != wanted[name]]
    if differing:
        raise CliError(
            f"nothing was applied: {', '.join(differing)} differ from those of the running cluster, and only "
            f"{' and '.join(LIVE_SECTIONS)} can change while it runs; use `treadle down` and `treadle up`"
        )
    known = KnownModels(load_config(file).models)
    if problems := known.changed(parse_config(text, str(file)).models).problems:
        raise CliError(f"nothing was applied: {listed(problems)}")


def _wait(config: ClusterConfig, gateway: ProcessSpec) -> list[str]:
    """Until every process of the gateway serves what it shall, by names; `CliError` where one cannot."""
    wanted = {name for spec in config.models for name in (spec.name, *spec.aliases)}
    wanted |= {adapter.name for spec in config.models for adapter in spec.adapters}
    began_s = time.monotonic()
    while (waited_s := time.monotonic() - began_s) < WAIT_S:
        state = known_state(gateway)
        models = [one["models"] for one in state.get("workers", [state]) if "models" in one]
        problem = next((one["problem"] for one in models if one["problem"]), "")
        if problem and waited_s > OLD_PROBLEM_S:
            raise CliError(f"the gateway does not take over all of it: {problem}")
        if models and not problem and all(set(one["served"]) == wanted for one in models):
            return list(models[0]["served"])
        time.sleep(POLL_S)
    raise CliError(f"the gateway has not taken it over within {WAIT_S:.0f} s; `treadle logs {GATEWAY}` says more")
