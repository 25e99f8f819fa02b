"""The cases of ablation.py: in each study one thing is varied.

Rates are fixed numbers, near what the devices of a study can serve (``attainment.py`` measures it), so
that cases of one study meet the same requests.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from runs import POLICIES, Case, Figures, models_of, nothing_more

from services.simulator.devices.catalogue import device, devices_of
from services.simulator.simulation import SimulationRun
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import INTERACTIVE_AND_BATCH, MANY_MODELS, ONE_MODEL, PaperWorkload
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.queue import OperationOptions

TWO = {"a100": 1, "a10": 1}
FOUR = {"a100": 3, "a10": 1}
MIXED_CLASSES_RPS = 12.0  # three models with interactive requests among them, on FOUR: more than it can serve
MEGA_RPS = 20.0
DELTAS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
MEGA_SHARES = (0.0, 0.05, 0.1, 0.2)
EQUAL_PRICES: Mapping[str, Mapping[str, int]] = {
    "2 A100": {"a100": 2},
    "1 A100 + 4 A10": {"a100": 1, "a10": 4},
    "8 A10": {"a10": 8},
}
"""At four A10 for the price of one A100, as the clouds let them."""
EQUAL_PRICES_RPS = 44.0
NUM_TUNED = 12
TUNED_RPS = 6.0
TUNED_FLEETS = {"qlm": (2, 3, 4), "shepherd": (2, 3), "fcfs": (6, 8), "edf": (8, 12)}
"""Devices below and above those that keep nine promises of ten, by policy. Fewer take the others hours of swaps."""
ZIPF_EXPONENT = 1.0  # of how often each of the tuned models is asked for
TENANTS_RPS = 30.0
FLOOD_SHARE = 0.9  # of the requests
QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of a study is run."""

    num_requests: int
    share: float
    """Of each study's rate."""


def operations(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """Each serving operation off: three models and all classes, so that each is of use.

    There are more devices than models, or without swaps nobody could serve one of them.
    """
    requests = _drawn(PaperWorkload(MANY_MODELS, INTERACTIVE_AND_BATCH), MIXED_CLASSES_RPS, scale, seed)
    models = models_of(requests)
    devices = devices_of(FOUR, models)
    cases = [Case("all", devices, models, requests)]
    for name in OperationOptions.model_fields:
        without = OperationOptions.model_validate({name: False})
        cases.append(Case(f"no {name}", devices, models, requests, operations=without))
    none = OperationOptions.model_validate(dict.fromkeys(OperationOptions.model_fields, False))
    cases.append(Case("none", devices, models, requests, operations=none))
    return cases, nothing_more


def mixes(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """Devices of equal price, one model."""
    requests = _drawn(PaperWorkload(ONE_MODEL, INTERACTIVE_AND_BATCH), EQUAL_PRICES_RPS, scale, seed)
    models = models_of(requests)
    fleets = {label: devices_of(counts, models) for label, counts in EQUAL_PRICES.items()}
    return [
        Case(label, devices, models, requests, policy) for label, devices in fleets.items() for policy in POLICIES
    ], nothing_more


def mega(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """Mega prompts among the others, one model."""
    cases = []
    for share in MEGA_SHARES:
        requests = _drawn(PaperWorkload(ONE_MODEL, INTERACTIVE_AND_BATCH, share), MEGA_RPS, scale, seed)
        models = models_of(requests)
        cases += [Case(f"{share:.0%}", devices_of(TWO, models), models, requests, policy) for policy in ("qlm", "fcfs")]
    return cases, nothing_more


def models(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """More models than devices: each is Mistral 7B with weights of its own, the first asked for most."""
    popularity = WeightedNames({f"tuned-{number}": 1 / (1 + number) ** ZIPF_EXPONENT for number in range(NUM_TUNED)})
    workload = PaperWorkload(popularity, WeightedNames({"batch-1": 1, "batch-2": 1}))
    requests = _drawn(workload, TUNED_RPS, replace(scale, num_requests=scale.num_requests // 2), seed)
    names = models_of(requests)
    base = device("a100", ["mistral-7b"])
    tuned = replace(base, models=dict.fromkeys(names, base.models["mistral-7b"]))
    cases = [
        Case(str(num_devices), {f"a100-{number}": tuned for number in range(num_devices)}, names, requests, policy)
        for policy, fleets in TUNED_FLEETS.items()
        for num_devices in fleets
    ]
    return cases, nothing_more


def tenants(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """One tenant floods the queue; the other's waits, as tenants and where nobody says who is who."""
    random = Random(seed)
    requests = [
        replace(one, tenant="flood" if random.random() < FLOOD_SHARE else QUIET)
        for one in _drawn(PaperWorkload(ONE_MODEL, WeightedNames({"batch-1": 1})), TENANTS_RPS, scale, seed)
    ]
    quiet = {number for number, one in enumerate(requests) if one.tenant == QUIET}
    models = models_of(requests)
    devices = devices_of(TWO, models)
    nobody = [replace(one, tenant="default") for one in requests]
    cases = [
        Case("fair", devices, models, requests),
        Case("tenants unknown", devices, models, nobody),
    ]

    def waits(run: SimulationRun) -> dict[str, Any]:
        found: dict[str, list[float]] = {"quiet": [], "flood": []}
        for one in run.recording.outcomes:
            if one.first_token_s is not None:
                found["quiet" if one.number in quiet else "flood"].append(one.first_token_s - one.sent_s)
        return {
            f"{tenant}_ttft_{name}_s": round(figure(waits_s), 3)
            for tenant, waits_s in found.items()
            for name, figure in (("mean", statistics.mean), ("p90", _p90))
        }

    return cases, waits


def delta(scale: Scale, seed: int) -> tuple[list[Case], Figures]:
    """Sizes of request groups; three models and all classes."""
    requests = _drawn(PaperWorkload(MANY_MODELS, INTERACTIVE_AND_BATCH), MIXED_CLASSES_RPS, scale, seed)
    models = models_of(requests)
    devices = devices_of(FOUR, models)
    return [Case(f"{one:g}", devices, models, requests, delta=one) for one in DELTAS], nothing_more


STUDIES: dict[str, Callable[[Scale, int], tuple[list[Case], Figures]]] = {
    "operations": operations,
    "mixes": mixes,
    "mega": mega,
    "models": models,
    "tenants": tenants,
    "delta": delta,
}


def _drawn(workload: PaperWorkload, rate_per_s: float, scale: Scale, seed: int) -> list[WorkloadRequest]:
    return workload.draw(scale.share * rate_per_s, scale.num_requests, Random(seed))


def _p90(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[8]
