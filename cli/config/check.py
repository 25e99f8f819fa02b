"""All that is wrong with a configuration, the machine and the models' files, before anything starts."""

from __future__ import annotations

from pathlib import Path

from cli.config.machine_check import machine_problems
from cli.config.model_check import ModelReport, check_models
from cli.errors import CliError
from shared.config.config import ClusterConfig, inspect_config
from shared.config.reading.problems import listed


def check_file(path: Path) -> tuple[ClusterConfig, ModelReport]:
    """The configuration in a file that is right in every respect; `CliError` lists all problems at once.

    What can be read of a file that is wrong is held against machine and models all the same.
    """
    found = inspect_config(path)
    report = ModelReport([], {}, [], {})
    problems = found.problems
    if found.config is not None:
        report = check_models(found.config)
        problems = found.with_more([*machine_problems(found.config), *report.problems])
    if problems or found.config is None:
        raise CliError(f"{path}: {listed(problems)}")
    return found.config, report


def check_start(config: ClusterConfig) -> None:
    """The same of a configuration that was read already, for `treadle up`: its models have been fetched."""
    problems = [*check_models(config).problems, *machine_problems(config)]
    if problems:
        raise CliError(f"this cluster cannot start: {listed(problems)}")
