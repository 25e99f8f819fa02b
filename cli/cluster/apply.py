"""`treadle apply`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml
from rich.console import Console

from cli.cluster.processes.health import known_state
from cli.cluster.processes.process_plan import GATEWAY, ProcessSpec, process_plan
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
        gateway = next(spec for spec in process_plan(config) if spec.name == GATEWAY)
        check_change(run_dir.config_file, text, told_by_processes(known_state(gateway)).served)
        pull_models(config, Console(stderr=True))
        if problems := check_models(config).problems:
            raise CliError(f"nothing was applied: {listed(problems)}")
        write_atomically(run_dir.config_file, text)
        served = _wait(config, gateway)
    click.echo(f"served: {', '.join(served)}")


def check_change(file: Path, text: str, served: list[list[str]]) -> None:
    """All but what is read again is as the cluster was started with it, and names stand for what they stood for.

    ``served``: names by process, empty where that is not known. What none of them serves, since it could not be taken
    over, may be corrected.
    """
    running, wanted = yaml.safe_load(file.read_text()), yaml.safe_load(text)
    differing = [name for name in wanted if name not in LIVE_SECTIONS and running.get(name) != wanted[name]]
    if differing:
        raise CliError(
            f"nothing was applied: {', '.join(differing)} differ from those of the running cluster, and only "
            f"{' and '.join(LIVE_SECTIONS)} can change while it runs; use `treadle down` and `treadle up`"
        )
    if running["keys"] and not wanted["keys"]:
        raise CliError(
            "nothing was applied: there are no keys any more; `treadle down` and `treadle up` open the gateway to all"
        )
    held = set().union(*served)
    known = KnownModels(spec for spec in load_config(file).models if not served or spec.name in held)
    if problems := known.changed(parse_config(text, str(file)).models).problems:
        raise CliError(f"nothing was applied: {listed(problems)}")


def _wait(config: ClusterConfig, gateway: ProcessSpec) -> list[str]:
    """Until every process of the gateway serves what it shall, by names; `CliError` where one cannot."""
    wanted = {name for spec in config.models for name in (spec.name, *spec.aliases)}
    wanted |= {adapter.name for spec in config.models for adapter in spec.adapters}
    began_s = time.monotonic()
    while (waited_s := time.monotonic() - began_s) < WAIT_S:
        told = told_by_processes(known_state(gateway))
        if told.problem and waited_s > OLD_PROBLEM_S:
            raise CliError(f"the gateway does not take over all of it: {told.problem}")
        is_whole = set(told.nums_keys) == {len(config.keys)} and all(set(one) == wanted for one in told.served)
        if told.served and is_whole and not told.problem:
            return told.served[0]
        time.sleep(POLL_S)
    raise CliError(f"the gateway has not taken it over within {WAIT_S:.0f} s; `treadle logs {GATEWAY}` says more")


class GatewayAnswers(NamedTuple):
    """What the processes of a gateway say of themselves."""

    problem: str
    """Why one of them does not go by its file; ``""``: all do, as far as they have read it."""
    served: list[list[str]]
    """Names of models, by process; empty where one of them has not answered, which may not know yet."""
    nums_keys: list[int]


def told_by_processes(state: dict[str, Any]) -> GatewayAnswers:
    """Without those that leave, which take no new requests. ``state``: what the gateway's admin port answers."""
    processes = [one for one in state.get("workers", [state]) if not one.get("is_leaving")]
    answers = [one for one in processes if "models" in one]
    problems = (one[section]["problem"] for one in answers for section in LIVE_SECTIONS)
    served = [list(one["models"]["served"]) for one in answers] if len(answers) == len(processes) else []
    return GatewayAnswers(next(filter(None, problems), ""), served, [one["keys"]["num_keys"] for one in answers])
