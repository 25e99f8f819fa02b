"""A simulated run whose errors are the user's to put right."""

from __future__ import annotations

from cli.errors import CliError
from services.simulator.fast.plain import FastEngineError
from services.simulator.simulation import Progress, Scenario, SimulationRun, StalledError, simulate
from services.simulator.workloads.request import WorkloadError


def checked_run(scenario: Scenario, progress: Progress = lambda _: None) -> SimulationRun:
    """`simulate`; raises `CliError` for a workload or an engine that does not do, and for a run that stalls."""
    try:
        return simulate(scenario, progress)
    except (WorkloadError, StalledError, FastEngineError) as error:
        raise CliError(str(error)) from error
