"""Simulations in which corrections of predicted waits are judged: a surge at one device, or a small cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from estimator_accuracy import CALM_REQUESTS, CASES, scenario
from runs import models_of

from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.simulation import Scenario
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import WORKLOADS
from shared.config.config import ClusterConfig


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation."""

    label: str
    scenario: Scenario
    judged: range
    to_the_end: bool
    """So that it has a report; else until those who are judged have started."""
    judge_every: int
    """Of so many requests one is predicted, by each variant."""
    num_models: int
    num_classes: int


def accuracy_run(case: int, num_requests: int, seed: int) -> Run:
    """A case of ``estimator_accuracy.py``."""
    made = scenario(CASES[case], "qlm", num_requests, seed)
    judged = range(CALM_REQUESTS, CALM_REQUESTS + num_requests)
    return Run(CASES[case].name, made, judged, False, 10, num_models=1, num_classes=len({*CASES[case].slos}))


@dataclass(frozen=True, slots=True)
class SmallCluster:
    """A workload of the paper on few devices."""

    workload: str
    devices: Mapping[str, int]
    rate_per_s: float
    slos: WeightedNames | None = None
    """None: the workload's own."""


POLICY_RUNS = {
    "wa": SmallCluster("wa", {"a100": 1, "a10": 1}, 20.0),
    "wb": SmallCluster("wb", {"a100": 2}, 4.0),
    "wb urgent": SmallCluster("wb", {"a100": 2}, 4.0, WeightedNames({"interactive": 1, "batch-1": 2})),
    "wc": SmallCluster("wc", {"a100": 1, "a10": 1}, 17.0),
}
"""In the third, somebody cannot wait for the turn of the own model: what some corrections are about."""


def policy_run(name: str, num_requests: int, seed: int) -> Run:
    """A small cluster. A run ends, which nobody foresees: waits of the first half are judged."""
    chosen = POLICY_RUNS[name]
    random = Random(seed)
    requests = WORKLOADS[chosen.workload].draw(chosen.rate_per_s, num_requests, random, slos=chosen.slos)
    models = models_of(requests)
    devices = devices_of(chosen.devices, models)
    made = Scenario(cluster_config(list(devices), models, ClusterConfig().queue), devices, requests)
    return Run(name, made, range(num_requests // 2), True, 2, len(models), len({one.slo for one in requests}))


RUNS = {
    **{f"accuracy {number}": partial(accuracy_run, number) for number in range(len(CASES))},
    **{f"policies {name}": partial(policy_run, name) for name in POLICY_RUNS},
}
